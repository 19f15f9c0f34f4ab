"""The correction line of the loop: weights and rejections of the whole batch, on the controller.

All rows are here, so a mean over the batch is one, however the rows are cut afterwards. With ``bypass_mode`` there is
nothing to compare yet, and the loss corrects instead (``rl_core.algorithms.rollout_correction.bypass``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import torch
from rl_dataproto import DataProto, lengths, pad_jagged, to_jagged

from rl_core.algorithms.inputs import LossTotals
from rl_core.algorithms.rollout_correction.diagnostics import mismatch, rejection_shares, weight_shares
from rl_core.algorithms.rollout_correction.moments import Moments
from rl_core.algorithms.rollout_correction.ratios import log_ratios, row_means
from rl_core.algorithms.rollout_correction.rejection import reject
from rl_core.algorithms.rollout_correction.weights import batch_normalize, importance_weights
from rl_core.config.correction import parse_correction
from rl_core.errors import DataError
from rl_core.metrics import Metric, merge_metrics

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.rollout_correction.diagnostics import Shares
    from rl_core.config import AlgorithmConfig
    from rl_core.config.correction import Correction

ROWS_AT_A_TIME: Final = 256
"""So that the float64 tensors of a part stay small: those of a large batch would be asked of the system one by one."""


def correct_rollouts(batch: DataProto, algorithm: AlgorithmConfig) -> tuple[DataProto, dict[str, Metric]]:
    """Weights and rejections from the distance between ``old_log_probs`` and ``rollout_log_probs``.

    Args:
        batch: every row of the step; jagged ``response_mask``, ``old_log_probs``, ``rollout_log_probs``.
        algorithm: the ``algorithm`` section; its ``rollout_correction`` says what is on.

    Returns:
        The batch, with jagged float32 ``rollout_is_weights`` when weights are on and jagged bool ``rejected`` when rules
        are; metrics under ``rollout_corr/``. Neither when the correction is off or happens inside the loss. Metrics are
        absent when no token is trained.

    Raises:
        ConfigError: bounds or rules that cannot work.
        DataError: there are no log-probs to compare, or one of a trained token is not a number.
    """
    keys = algorithm.rollout_correction
    if keys.bypass_mode or (keys.rollout_is is None and keys.rollout_rs is None):
        return batch, {}
    correction = parse_correction(keys)
    mask = pad_jagged(batch.batch["response_mask"], 0).bool()
    old, rollout = _log_probs(batch, "old_log_probs", mask), _log_probs(batch, "rollout_log_probs", mask)
    parts = [slice(start, start + ROWS_AT_A_TIME) for start in range(0, len(mask), ROWS_AT_A_TIME)]
    log_ratio = [log_ratios(old[part], rollout[part], mask[part]) for part in parts]
    columns: dict[str, Tensor] = {}
    totals = LossTotals.of(mask, 1)
    metrics = _added_up(
        mismatch(old[part], rollout[part], ratio, mask[part], totals)
        for part, ratio in zip(parts, log_ratio, strict=True)
    )
    trained = mask
    if correction.rules:
        columns["rejected"], more = _rejected(log_ratio, parts, mask, correction)
        trained = mask & ~columns["rejected"]
        metrics |= more
    if correction.level is not None:
        columns["rollout_is_weights"], more = _weights(log_ratio, parts, mask, trained, correction)
        metrics |= more
    widths = lengths(batch.batch["response_mask"])
    added = DataProto.from_dict(tensors={name: to_jagged(column, widths) for name, column in columns.items()})
    if not mask.any():
        metrics = {}
    return batch.select().union(added), {f"rollout_corr/{name}": metric for name, metric in metrics.items()}


def generator_log_probs(batch: DataProto) -> DataProto:
    """The batch with the generator's log-probs as the old ones, whatever stood there.

    Raises:
        DataError: the generator gave none, or one of a trained token is not a number.
    """
    mask = pad_jagged(batch.batch["response_mask"], 0).bool()
    _log_probs(batch, "rollout_log_probs", mask)
    if "old_log_probs" in batch.batch.keys():  # noqa: SIM118 - a TensorDict
        batch = batch.select([name for name in batch.batch.keys() if name != "old_log_probs"])  # noqa: SIM118
    column = batch.batch["rollout_log_probs"]
    return batch.select().union(DataProto.from_dict(tensors={"old_log_probs": column}))


def _log_probs(batch: DataProto, name: str, mask: Tensor) -> Tensor:
    if name not in batch.batch.keys():  # noqa: SIM118 - a TensorDict
        msg = (
            f"the correction for the generator's policy compares old_log_probs with rollout_log_probs; found no {name}. Let "
            "the generation engine report log-probs (actor_rollout_ref.rollout.calculate_log_probs), or turn "
            "algorithm.rollout_correction and actor_rollout_ref.actor.use_rollout_log_probs off."
        )
        raise DataError(msg)
    column = pad_jagged(batch.batch[name], 0.0, length=mask.shape[1])
    bad = (column.isnan() & mask).any(dim=1).nonzero().flatten().tolist()
    if bad:
        msg = (
            f"{name} must be numbers where a token is trained; found NaN in {len(bad)} of {len(mask)} rows (rows "
            f"{', '.join(map(str, bad[:5]))}). The engine that computed them has failed; look at its precision."
        )
        raise DataError(msg)
    return column


def _rejected(
    log_ratio: Sequence[Tensor], parts: Sequence[slice], mask: Tensor, correction: Correction
) -> tuple[Tensor, dict[str, Metric]]:
    rejected, totals = torch.zeros_like(mask), LossTotals.of(mask, 1)
    distances: dict[str, Moments] = defaultdict(Moments)
    shares = []
    for part, ratio in zip(parts, log_ratio, strict=True):
        rejected[part], outcomes = reject(ratio, mask[part], correction.rules)
        shares.append(rejection_shares(rejected[part], outcomes, mask[part], totals))
        for outcome in outcomes:
            distances[outcome.name].add(outcome.distance, outcome.counted)
    spreads = {f"rollout_rs_{name}_std": Metric(moments.spread, "last") for name, moments in distances.items()}
    return rejected, _added_up(shares) | spreads


def _weights(
    log_ratio: Sequence[Tensor], parts: Sequence[slice], mask: Tensor, trained: Tensor, correction: Correction
) -> tuple[Tensor, dict[str, Metric]]:
    level = correction.level
    assert level is not None  # the caller has looked
    weights, totals = torch.zeros(mask.shape, dtype=torch.float64), LossTotals.of(trained, 1)
    of_tokens, of_rows = Moments(), Moments()
    shares = []
    for part, ratio in zip(parts, log_ratio, strict=True):
        found, counted = importance_weights(ratio, mask[part], level, correction.bounds), trained[part]
        shares.append(weight_shares(found, counted, correction.bounds, totals))
        of_tokens.add(found.weights, counted)
        of_rows.add(row_means(found.weights, counted), counted.any(dim=1))
        weights[part] = found.weights
    metrics = _added_up(shares)
    samples = of_tokens if level == "token" else of_rows
    metrics["rollout_is_std"] = Metric(of_tokens.spread, "last")
    metrics["rollout_is_seq_std"] = Metric(of_rows.spread, "last")
    metrics["rollout_is_eff_sample_size"] = Metric(samples.effective_sample_size, "last")
    if correction.should_normalize:
        weights, factor = batch_normalize(weights, trained, level)
        metrics["rollout_is_batch_norm_factor"] = Metric(factor, "last")
    return weights.to(torch.float32), metrics


def _added_up(shares: Iterable[Shares]) -> dict[str, Metric]:
    """Shares of parts, as metrics of the whole."""
    return merge_metrics(
        [{name: Metric(float(value), reduce) for name, (value, reduce) in part.items()} for part in shares]
    )
