"""The optimizer steps of one update, the same for every role that is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rl_core.metrics import Metric, merge_metrics

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.algorithms.inputs import LossTotals
    from rl_core.contracts.engine import LossFunction, TrainingEngine
    from rl_core.contracts.mini_batch import MiniBatchPlan


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """What an update did.

    Attributes:
        metrics: this rank's share of each metric; a mean over the optimizer steps.
        num_applied: optimizer steps that changed the weights.
    """

    metrics: dict[str, Metric]
    num_applied: int


def run_updates(
    engine: TrainingEngine,
    batch: DataProto,
    plan: MiniBatchPlan,
    make_loss: Callable[[LossTotals], LossFunction],
    *,
    prefix: str,
) -> UpdateReport:
    """One optimizer step for each mini-batch of ``plan``, in its order. Collective over the engine's group.

    Args:
        engine: the role's engine.
        batch: this rank's rows.
        plan: in terms of those rows.
        make_loss: builds the loss function of a mini-batch from its totals.
        prefix: first part of the metric names that do not come from the loss function.
    """
    steps: list[Mapping[str, Metric]] = []
    num_skipped = 0
    for mini_batch in plan.batches:
        metrics = engine.forward_backward(batch.select_idxs(mini_batch.rows), make_loss(mini_batch.totals))
        step = engine.optimizer_step()
        num_skipped += step.skipped
        shares = {name: _share_of_mean(metric, len(plan.batches)) for name, metric in (metrics or {}).items()}
        steps.append({f"{prefix}/loss" if name == "loss" else name: metric for name, metric in shares.items()})
        # The norm is the same on every rank, so ranks and steps are averaged alike.
        steps.append({f"{prefix}/grad_norm": Metric(step.grad_norm, "mean", keep_nan=True)})
    report = merge_metrics(steps)
    report[f"{prefix}/lr"] = Metric(engine.lr_scheduler_step(), "last")
    report[f"{prefix}/optimizer_steps"] = Metric(len(plan.batches), "max")
    report[f"{prefix}/skipped_steps"] = Metric(num_skipped, "max")
    return UpdateReport(report, len(plan.batches) - num_skipped)


def _share_of_mean(metric: Metric, num_steps: int) -> Metric:
    """A share of one step's value as a share of the mean over steps; maxima, minima and means stay what they are."""
    return replace(metric, value=metric.value / num_steps) if metric.reduce == "sum" else metric
