"""Does the generator sample from the policy that is trained? Re-scoring tells, at every step.

The training engine recomputes the log-probs of the sampled tokens anyway; their distance from the sampler's own is the
cheapest proof that a weight hand-over worked, and the first sign of a drift. Only tokens of the weights that are trained
now can prove that; those that a schedule drew with older ones are reported on their own and hold nobody up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_core.errors import WeightSyncError
from rl_core.trainer.ppo.parity_report import ParityReport, cause_lines
from rl_core.trainer.ppo.parity_stats import GAP_MEAN, parity_metrics

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.config import ParityConfig
    from rl_core.trainer.ppo.parity_file import ParityFile


def check_parity(
    batch: DataProto, limits: ParityConfig, step: int, file: ParityFile, *, is_first: bool
) -> dict[str, float]:
    """The gap of this step.

    Args:
        batch: with ``rollout_log_probs`` and ``old_log_probs``, and ``on_policy_mask`` where not all tokens are of the
            current weights.
        limits: ``trainer.parity``.
        step: global step, for the message.
        file: takes the report of the step.
        is_first: whether this is the first hand-over between these engines: of a new run, or after a resume.

    Returns:
        The parity metrics; empty when the generator reports no log-probs, without a gap when older weights drew them all.

    Raises:
        WeightSyncError: the mean absolute gap is above its limit, or is not a number; names the most likely cause.
    """
    metrics = parity_metrics(batch)
    if not metrics:
        return metrics
    gap = metrics.get(GAP_MEAN)
    limit, key = largest_gap(limits, is_first=is_first)
    stops = gap is not None and limit is not None and not gap <= limit
    report = file.take(batch, step, gap, stops=stops)
    if stops:
        msg = (
            f"step {step}: log-probs of the sampled tokens differ by {gap:.4g} nats on average between generator and "
            f"trainer; {key} is {limit:g}.{_why(report, file)}"
        )
        raise WeightSyncError(msg)
    return metrics


def largest_gap(limits: ParityConfig, *, is_first: bool) -> tuple[float | None, str]:
    """The limit of a step's mean gap and the key that sets it; None does not limit it."""
    limit, key = limits.max_logprob_gap, "trainer.parity.max_logprob_gap"
    if is_first and (limit is None or limits.first_sync_tolerance < limit):
        return limits.first_sync_tolerance, "trainer.parity.first_sync_tolerance"
    return limit, key


def _why(report: ParityReport | None, file: ParityFile) -> str:
    if report is None:
        return ""
    lines = [
        *cause_lines(report.cause),
        f"the tokens with the largest gaps: {file.path}; without training: rl parity with the same arguments",
    ]
    return "".join(f"\n  {line}" for line in lines)
