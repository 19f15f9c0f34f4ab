"""Checkpoints through torch.distributed.checkpoint, which cuts and joins shards for any number of ranks.

::

    engine.json           what it is, schedule, counters                      (rank 0)
    tensors/              weights and optimizer state by name                 (every rank its part)
    random_RANK.pt        the random stream of a rank                         (every rank)
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch
from rl_core.contracts.engine import EngineState
from rl_core.errors import CheckpointError
from rl_engine.agreement import together
from rl_engine.engine_record import EngineRecord
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load as load_tensors

from rl_backend_fsdp.writing import Writing

if TYPE_CHECKING:
    from rl_backend_fsdp.engine import FSDPEngine

_TENSORS: Final = "tensors"
_WEIGHT, _OPTIMIZER = "weight/", "optimizer/"


def start(engine: FSDPEngine, directory: Path, *, in_background: bool) -> Writing:
    """Begin to write the state of ``engine``; ``Writing.finish`` makes it a checkpoint. Collective.

    Args:
        engine: whose.
        directory: gets it; empty.
        in_background: copy everything to the host first and write the copy in a thread; otherwise all is written on return.

    Raises:
        CheckpointError: a rank could not write; raised on every rank.
    """
    _require_states(engine, "save")

    def prepare() -> None:
        directory.mkdir(parents=True, exist_ok=True)
        torch.save(engine.random.state_dict(), _random_file(directory, engine.context.rank))
        if engine.context.rank == 0:
            engine.record().write(directory)

    together(engine.context, f"checkpoint {directory} could not be written", prepare)
    tensors = _weights(engine) | _optimizer_state(engine)
    return Writing(engine.context, directory / _TENSORS, tensors, in_background=in_background)


def load(engine: FSDPEngine, directory: Path) -> None:
    """Take over what ``save`` wrote, from any number of ranks. Collective.

    Raises:
        CheckpointError: files are missing, cut short, or of another model; raised on every rank, nothing was changed.
    """
    _require_states(engine, "load")
    record, metadata = together(
        engine.context, f"checkpoint {directory} cannot be loaded", lambda: _read_checked(engine, directory)
    )
    tensors = _weights(engine) | _empty_optimizer_state(engine, metadata)
    together(
        engine.context,
        f"checkpoint {directory} cannot be loaded",
        lambda: load_tensors(tensors, checkpoint_id=str(directory / _TENSORS)),
    )
    _put_optimizer_state(engine, tensors)
    engine.schedule_step = record.schedule_step
    engine.skipped_steps = record.skipped_steps
    if record.world_size == engine.context.world_size:
        states = torch.load(_random_file(directory, engine.context.rank), weights_only=True)
        engine.random.load_state_dict(states)
    else:
        engine.seed_random()


def _require_states(engine: FSDPEngine, what_for: str) -> None:
    engine.module(what_for)
    needed = [EngineState.PARAMETERS, *([EngineState.OPTIMIZER] if engine.is_trained else [])]
    engine.states.require(what_for, *needed)


def _read_checked(engine: FSDPEngine, directory: Path) -> tuple[EngineRecord, Metadata]:
    """What the checkpoint says about itself; every file that it names is there, and long enough."""
    record = EngineRecord.read(directory)
    record.check(engine.record(), directory)
    folder = directory / _TENSORS
    metadata = FileSystemReader(str(folder)).read_metadata()
    ends: dict[str, int] = {}
    for place in (metadata.storage_data or {}).values():
        ends[place.relative_path] = max(ends.get(place.relative_path, 0), place.offset + place.length)
    short = sorted(name for name, end in ends.items() if (folder / name).stat().st_size < end)
    wanted = {_WEIGHT + name for name in engine.record().shapes}
    lost = sorted(wanted - set(metadata.state_dict_metadata))
    if record.world_size == engine.context.world_size and not _random_file(directory, engine.context.rank).is_file():
        short.append(_random_file(directory, engine.context.rank).name)
    if short or lost:
        msg = f"{directory} is incomplete: files missing or cut short: {short[:3]}; tensors missing: {lost[:3]}"
        raise CheckpointError(msg)
    return record, metadata


def _weights(engine: FSDPEngine) -> dict[str, Tensor]:
    return {_WEIGHT + name: tensor for name, tensor in engine.streams.kept_tensors().items()}


def _trained(engine: FSDPEngine) -> dict[str, Tensor]:
    """Name -> parameter that the optimizer changes."""
    return {name.removeprefix(_WEIGHT): tensor for name, tensor in _weights(engine).items() if tensor.requires_grad}


def _optimizer_state(engine: FSDPEngine) -> dict[str, Tensor]:
    """Every tensor of the optimizer's state by parameter and key.

    Raises:
        CheckpointError: the optimizer keeps something else, which would be lost.
    """
    if engine.optimizer is None:
        return {}
    state: dict[str, Tensor] = {}
    for name, parameter in _trained(engine).items():
        for key, value in engine.optimizer.state.get(parameter, {}).items():
            if not isinstance(value, Tensor):
                msg = (
                    f"optimizer {type(engine.optimizer).__name__} keeps {key!r} as a {type(value).__name__}; only tensors "
                    "can be saved. Choose another one in optim.optimizer"
                )
                raise CheckpointError(msg)
            state[f"{_OPTIMIZER}{name}/{key}"] = value
    return state


def _empty_optimizer_state(engine: FSDPEngine, metadata: Metadata) -> dict[str, Tensor]:
    """Room for every tensor of optimizer state in the files: cut as its parameter is, or whole where it has another shape."""
    if engine.optimizer is None:
        return {}
    trained = _trained(engine)
    room: dict[str, Tensor] = {}
    for path, stored in metadata.state_dict_metadata.items():
        if not path.startswith(_OPTIMIZER) or not isinstance(stored, TensorStorageMetadata):
            continue
        parameter = trained[path.removeprefix(_OPTIMIZER).rpartition("/")[0]]
        dtype = stored.properties.dtype
        if stored.size == parameter.shape:
            room[path] = torch.zeros_like(parameter.detach(), dtype=dtype)
        else:
            room[path] = torch.zeros(stored.size, dtype=dtype)
    return room


def _put_optimizer_state(engine: FSDPEngine, tensors: dict[str, Tensor]) -> None:
    optimizer = engine.optimizer
    if optimizer is None:
        return
    trained = _trained(engine)
    optimizer.zero_grad(set_to_none=True)
    optimizer.state.clear()
    for path, tensor in tensors.items():
        if path.startswith(_OPTIMIZER):
            name, _, key = path.removeprefix(_OPTIMIZER).rpartition("/")
            optimizer.state[trained[name]][key] = tensor


def _random_file(directory: Path, rank: int) -> Path:
    return directory / f"random_{rank}.pt"
