"""Does the generator sample from the policy that is trained? Re-scoring tells, at every step.

The training engine recomputes the log-probs of the sampled tokens anyway; their distance from the sampler's own is the
cheapest proof that a weight hand-over worked, and the first sign of a drift. Only tokens of the weights that are trained
now can prove that; those that a schedule drew with older ones are reported on their own and hold nobody up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_core.errors import WeightSyncError
from rl_core.trainer.ppo.metrics import parity_metrics

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.config import ParityConfig


def check_parity(batch: DataProto, limits: ParityConfig, step: int, *, is_first: bool) -> dict[str, float]:
    """The gap of this step.

    Args:
        batch: with ``rollout_log_probs`` and ``old_log_probs``, and ``on_policy_mask`` where not all tokens are of the
            current weights.
        limits: ``trainer.parity``.
        step: global step, for the message.
        is_first: whether this is the first hand-over between these engines: of a new run, or after a resume.

    Returns:
        The parity metrics; empty when the generator reports no log-probs, without a gap when older weights drew them all.

    Raises:
        WeightSyncError: the mean absolute gap is above its limit, or is not a number.
    """
    metrics = parity_metrics(batch)
    if "training/logprob_gap/mean" not in metrics:
        return metrics
    gap = metrics["training/logprob_gap/mean"]
    limit, key = limits.max_logprob_gap, "trainer.parity.max_logprob_gap"
    if is_first and (limit is None or limits.first_sync_tolerance < limit):
        limit, key = limits.first_sync_tolerance, "trainer.parity.first_sync_tolerance"
    if limit is not None and not gap <= limit:
        msg = (
            f"step {step}: log-probs of the sampled tokens differ by {gap:.4g} nats on average between generator and "
            f"trainer; {key} is {limit:g}. The generator samples from other weights, at another temperature, or in a much "
            "lower precision than the trainer."
        )
        raise WeightSyncError(msg)
    return metrics
