"""What the engine suite asks of every rank: functions of an engine that travel to other processes.

Arguments and results are plain data, and nothing here refers to the suite.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from rl_core.contracts.engine import EngineState, EngineWork, LossFunction, StepResult, TrainingEngine
from rl_core.contracts.weights import WeightManifest
from rl_core.metrics import Metric
from rl_core.resharding.digest import add_to_digest
from rl_core.single_controller.base.collective import DispatchInfo
from rl_dataproto import DataProto
from rl_dataproto.jagged import Jagged
from torch import Tensor

from rl_testing.contracts.engine_columns import columns
from rl_testing.contracts.engine_losses import Recorded, RecordingLoss

if TYPE_CHECKING:
    from collections.abc import Mapping

BUCKET_BYTES = 1 << 12


@dataclass(frozen=True, slots=True)
class Answer:
    """What one rank returned from ``forward``: rows by output name, or None."""

    info: DispatchInfo
    columns: dict[str, list[Tensor]] | None


@dataclass(frozen=True, slots=True)
class Step:
    """What one rank returned from one update."""

    info: DispatchInfo
    metrics: dict[str, Metric] | None
    result: StepResult
    next_learning_rate: float


@dataclass(frozen=True, slots=True)
class Stream:
    """One pass over a weight stream."""

    manifest: WeightManifest
    buckets: list[list[str]]
    """Names in each bucket."""
    indices: list[int]
    bytes: list[int]
    weights: dict[str, Tensor]
    digest: dict[str, int]


def initialize(engine: TrainingEngine) -> None:
    """As a worker does."""
    engine.initialize()


def close(engine: TrainingEngine) -> None:
    """As a worker does."""
    engine.close()


def num_groups(engine: TrainingEngine) -> int:
    """Process groups that are open in the process, whoever opened them; the engine may be closed."""
    return len(dist.distributed_c10d._world.pg_map)


def dispatch_info(engine: TrainingEngine) -> DispatchInfo:
    """The rank's part."""
    return engine.dispatch_info()


def share(batch: DataProto, info: DispatchInfo) -> DataProto:
    """The rows that dispatch would give: consecutive, nearly equal, possibly none."""
    rows = torch.arange(len(batch)).tensor_split(info.dp_size)[info.dp_rank]
    return batch.select_idxs(rows)


def forward(engine: TrainingEngine, *, batch: DataProto, outputs: Collection[str]) -> Answer:
    """``forward`` on the rank's share."""
    info = engine.dispatch_info()
    result = engine.forward(share(batch, info), outputs)
    if result is None:
        return Answer(info, None)
    found = {name: [row.clone() for row in Jagged.of(column).rows()] for name, column in columns(result).items()}
    return Answer(info, found)


def work_of(
    engine: TrainingEngine, *, batch: DataProto, loss_fn: LossFunction, outputs: Collection[str]
) -> tuple[DispatchInfo, list[EngineWork | None]]:
    """What the engine says it has computed after nothing, a forward pass, and one with its gradient."""
    work = [engine.take_work()]
    forward(engine, batch=batch, outputs=outputs)
    work.append(engine.take_work())
    info, _ = accumulate(engine, batch=batch, loss_fn=loss_fn)
    return info, [*work, engine.take_work(), engine.take_work()]


def forward_without_adapter(engine: TrainingEngine, *, batch: DataProto, outputs: Collection[str]) -> Answer:
    """``forward`` as the base model."""
    with engine.disable_adapter():
        return forward(engine, batch=batch, outputs=outputs)


def accumulate(
    engine: TrainingEngine, *, batch: DataProto, loss_fn: LossFunction
) -> tuple[DispatchInfo, dict[str, Metric] | None]:
    """``forward_backward`` on the rank's share."""
    info = engine.dispatch_info()
    metrics = engine.forward_backward(share(batch, info), loss_fn)
    return info, None if metrics is None else dict(metrics)


def step(engine: TrainingEngine) -> StepResult:
    """Only the optimizer."""
    return engine.optimizer_step()


def advance_schedule(engine: TrainingEngine, *, steps: int) -> list[float]:
    """Learning rates after each of ``steps`` schedule steps."""
    return [engine.lr_scheduler_step() for _ in range(steps)]


def train(engine: TrainingEngine, *, batches: Sequence[DataProto], loss_fn: LossFunction) -> list[Step]:
    """One update for each of ``batches``: gradient, optimizer step, schedule step."""
    steps = []
    for batch in batches:
        info, metrics = accumulate(engine, batch=batch, loss_fn=loss_fn)
        result = engine.optimizer_step()
        steps.append(Step(info, metrics, result, engine.lr_scheduler_step()))
    return steps


def record_losses(
    engine: TrainingEngine, *, batch: DataProto, outputs: frozenset[str]
) -> tuple[DispatchInfo, list[Recorded], dict[str, Metric] | None]:
    """What a loss function is called with on this rank."""
    loss_fn = RecordingLoss(outputs)
    info, metrics = accumulate(engine, batch=batch, loss_fn=loss_fn)
    return info, loss_fn.calls, metrics


def stream(engine: TrainingEngine, *, bucket_bytes: int = BUCKET_BYTES) -> Stream:
    """Drain the weight stream, copying as a sink must."""
    result = Stream(engine.weight_manifest(), [], [], [], {}, {})
    for bucket in engine.named_weights(bucket_bytes):
        result.buckets.append([part.name for part in bucket.slices])
        result.indices.append(bucket.index)
        result.bytes.append(sum(part.tensor.nbytes for part in bucket.slices))
        add_to_digest(result.digest, bucket.slices)
        result.weights.update({part.name: part.tensor.detach().cpu().clone() for part in bucket.slices})
    return result


def adapter_names(engine: TrainingEngine) -> list[str]:
    """Names in the adapter's manifest."""
    return list(engine.weight_manifest("adapter").names)


def offload(engine: TrainingEngine, *, states: Collection[EngineState]) -> frozenset[EngineState]:
    """Move ``states`` off the device; what is left there."""
    engine.offload(states)
    return engine.resident()


def onload(engine: TrainingEngine, *, states: Collection[EngineState]) -> frozenset[EngineState]:
    """Bring ``states`` back; what is there."""
    engine.onload(states)
    return engine.resident()


def resident(engine: TrainingEngine) -> frozenset[EngineState]:
    """What is on the device."""
    return engine.resident()


def save(engine: TrainingEngine, *, directory: Path) -> None:
    """Write a checkpoint."""
    engine.save(directory)


def start_save(engine: TrainingEngine, *, directory: Path) -> None:
    """Begin to write a checkpoint."""
    engine.start_save(directory)


def finish_save(engine: TrainingEngine) -> None:
    """Make it whole."""
    engine.finish_save()


def load(engine: TrainingEngine, *, directory: Path) -> None:
    """Read a checkpoint."""
    engine.load(directory)


def export(engine: TrainingEngine, *, directory: Path) -> None:
    """Write a Hugging Face checkpoint."""
    engine.export_hf(directory)


def measure(engine: TrainingEngine, *, probe: Callable[[TrainingEngine], int | None]) -> int | None:
    """Bytes that ``probe`` finds on the device."""
    return probe(engine)


def writes_into_input(
    engine: TrainingEngine, *, batch: DataProto, outputs: Collection[str], loss_fn: LossFunction
) -> list[str]:
    """Columns of this rank's input that are no longer what they were after a forward and a forward_backward."""
    mine = share(batch, engine.dispatch_info())
    before = share(batch, engine.dispatch_info())
    meta = dict(mine.meta_info)
    names = list(columns(mine).keys())
    versions = {name: _values(mine, name)._version for name in names}
    engine.forward(mine, outputs)
    engine.forward_backward(mine, loss_fn)
    changed = [
        name
        for name in names
        if name not in columns(mine).keys()  # noqa: SIM118 - a TensorDict
        or not torch.equal(_values(mine, name), _values(before, name))
        or _values(mine, name)._version != versions[name]
    ]
    changed += sorted(set(columns(mine).keys()) - set(names))
    return changed + (["meta_info"] if mine.meta_info != meta else [])


def _values(batch: DataProto, name: str) -> Tensor:
    column: Tensor = columns(batch)[name]
    return column.values() if column.is_nested else column


def collected(answers: Iterable[Answer]) -> dict[str, list[Tensor]]:
    """The answers of the collecting ranks, put together in data-parallel order, as the controller does."""
    answering = sorted(
        (answer for answer in answers if answer.columns is not None), key=lambda answer: answer.info.dp_rank
    )
    joined: dict[str, list[Tensor]] = {}
    for answer in answering:
        for name, rows in (answer.columns or {}).items():
            joined.setdefault(name, []).extend(rows)
    return joined


def summed(metrics: Iterable[Mapping[str, Metric] | None], name: str) -> float:
    """The sum over ranks of one metric of shares."""
    return sum(report[name].value for report in metrics if report is not None and name in report)
