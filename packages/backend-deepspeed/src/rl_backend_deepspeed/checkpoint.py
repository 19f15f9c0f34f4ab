"""Checkpoints: what each rank's optimizer holds, with a table of which numbers of which tensor these are.

::

    engine.json           what it is, schedule, counters                              (rank 0)
    zero_RANK.pt          float32 weights and optimizer state of a rank, its pieces   (every rank)
    whole.pt              tensors that no optimizer changes                           (rank 0)
    random_RANK.pt        the random stream of a rank                                 (every rank)

Any number of ranks and any stage can read them: numbers are found by tensor and place.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from rl_core.contracts.engine import EngineState
from rl_core.errors import CheckpointError
from rl_engine.agreement import together
from rl_engine.engine_record import EngineRecord
from torch import Tensor

from rl_backend_deepspeed.mesh import Piece, flat_weights, pieces
from rl_backend_deepspeed.weights import is_cut

if TYPE_CHECKING:
    from rl_backend_deepspeed.engine import DeepSpeedEngine

_WHOLE: Final = "whole.pt"


def save(engine: DeepSpeedEngine, directory: Path) -> None:
    """Write the state of ``engine`` below ``directory``. Collective.

    Raises:
        CheckpointError: a rank could not write; raised on every rank.
    """
    _require_states(engine, "save")
    rank = engine.context.rank
    what = f"checkpoint {directory} could not be written"
    together(engine.context, what, lambda: directory.mkdir(parents=True, exist_ok=True))
    whole = _whole_tensors(engine)

    def write() -> None:
        torch.save(engine.random.state_dict(), _random_file(directory, rank))
        if engine.is_trained:
            torch.save(_own_state(engine), _zero_file(directory, rank))
        if rank == 0:
            torch.save(whole, directory / _WHOLE)
            engine.record().write(directory)

    together(engine.context, what, write)


def load(engine: DeepSpeedEngine, directory: Path) -> None:
    """Take over what ``save`` wrote, from any number of ranks. Collective.

    Raises:
        CheckpointError: files are missing, cut short, or of another model; raised on every rank, nothing was changed.
    """
    _require_states(engine, "load")
    record, read = together(
        engine.context, f"checkpoint {directory} cannot be loaded", lambda: _read(engine, directory)
    )
    with torch.no_grad():
        if engine.is_trained:
            _put_state(engine, read["flats"], read["states"])
        _put_whole(engine, read["whole"])
    engine.schedule_step = record.schedule_step
    engine.skipped_steps = record.skipped_steps
    if read["random"] is None:
        engine.seed_random()
    else:
        engine.random.load_state_dict(read["random"])


def _require_states(engine: DeepSpeedEngine, what_for: str) -> None:
    engine.module(what_for)
    needed = [EngineState.PARAMETERS, *([EngineState.OPTIMIZER] if engine.is_trained else [])]
    engine.states.require(what_for, *needed)


def _names(engine: DeepSpeedEngine) -> dict[int, str]:
    """``id`` of a trained parameter -> its name."""
    kept = {name: engine.streams.real(tensor) for name, tensor in engine.streams.kept_tensors().items()}
    return {id(tensor): name for name, tensor in kept.items() if engine.is_trained and tensor.requires_grad}


def _whole_tensors(engine: DeepSpeedEngine) -> dict[str, Tensor]:
    """What is kept and not trained; one tensor is gathered at a time."""
    trained = set(_names(engine).values())
    found: dict[str, Tensor] = {}
    specs = {spec.name: spec for spec in engine.streams.kept.sent}
    for name, tensor in engine.streams.kept_tensors().items():
        if name not in trained:
            (gathered,) = engine.gather([specs[name]], [tensor])
            if engine.context.rank == 0:
                found[name] = gathered.to("cpu", copy=True)
    return found


def _pieces(engine: DeepSpeedEngine) -> list[Piece]:
    return pieces(engine.optimizer, engine.stage, _names(engine), engine.context.rank)


def _own_state(engine: DeepSpeedEngine) -> dict[str, Any]:
    """Pieces, float32 weights and optimizer state of this rank, one entry for each group.

    Raises:
        CheckpointError: the optimizer keeps something that is no tensor, which would be lost.
    """
    optimizer: Any = engine.optimizer
    flats = flat_weights(optimizer, engine.stage)
    states = []
    for flat in flats:
        state = optimizer.state.get(flat, {})
        odd = sorted(key for key, value in state.items() if value is not None and not isinstance(value, Tensor))
        if odd:
            msg = f"the optimizer keeps {odd[0]!r}, which is no tensor and cannot be saved. Choose another optim.optimizer"
            raise CheckpointError(msg)
        states.append({key: value for key, value in state.items() if isinstance(value, Tensor)})
    return {
        "pieces": [dataclasses.astuple(piece) for piece in _pieces(engine)],
        "weights": [flat.detach() for flat in flats],
        "states": states,
    }


def _read(engine: DeepSpeedEngine, directory: Path) -> tuple[EngineRecord, dict[str, Any]]:
    """Everything that this rank takes over, before anything is changed."""
    record = EngineRecord.read(directory)
    record.check(engine.record(), directory)
    rank = engine.context.rank
    same = record.world_size == engine.context.world_size
    random = torch.load(_random_file(directory, rank), weights_only=True) if same else None
    whole = torch.load(directory / _WHOLE, map_location="cpu", weights_only=True)
    _check_whole(engine, whole, directory)
    flats: list[Tensor] = []
    states: list[dict[str, Tensor]] = []
    if engine.is_trained:
        files = [_zero_file(directory, number) for number in range(record.world_size)]
        stored = [torch.load(file, map_location="cpu", weights_only=True, mmap=True) for file in files]
        flats, states = _cut_anew(engine, stored, directory)
    return record, {"random": random, "whole": whole, "flats": flats, "states": states}


def _check_whole(engine: DeepSpeedEngine, whole: dict[str, Tensor], directory: Path) -> None:
    trained = set(_names(engine).values())
    for name, shown in engine.streams.kept_tensors().items():
        found = whole.get(name)
        if name not in trained and (found is None or found.shape != shown.shape):
            there = "is not there" if found is None else f"has the shape {tuple(found.shape)}"
            msg = f"{directory} is incomplete: {name} {there} in {_WHOLE}"
            raise CheckpointError(msg)


def _cut_anew(
    engine: DeepSpeedEngine, stored: list[dict[str, Any]], directory: Path
) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """This rank's flat tensors, from whatever cut ``stored`` has."""
    own = [flat.detach() for flat in flat_weights(engine.optimizer, engine.stage)]
    flats = [torch.zeros(flat.shape, dtype=flat.dtype) for flat in own]
    states: list[dict[str, Tensor]] = [{} for _ in own]
    by_name: dict[str, list[tuple[Piece, dict[str, Any]]]] = {}
    for file in stored:
        for values in file["pieces"]:
            by_name.setdefault(values[0], []).append((Piece(*values), file))
    for piece in _pieces(engine):
        covered = 0
        for other, file in by_name.get(piece.name, []):
            start = max(piece.start, other.start)
            length = min(piece.start + piece.length, other.start + other.length) - start
            if length <= 0:
                continue
            covered += length
            into, out_of = piece.offset + start - piece.start, other.offset + start - other.start
            source = file["weights"][other.group]
            flats[piece.group][into : into + length] = source[out_of : out_of + length]
            for key, value in file["states"][other.group].items():
                if value.shape == source.shape:
                    room = states[piece.group].setdefault(key, torch.zeros(own[piece.group].shape, dtype=value.dtype))
                    room[into : into + length] = value[out_of : out_of + length]
                else:  # a count of steps, the same for all
                    states[piece.group][key] = value.clone()
        if covered != piece.length:
            msg = f"{directory} is incomplete: {covered} of {piece.length} numbers of {piece.name} are there"
            raise CheckpointError(msg)
    return flats, states


def _put_state(engine: DeepSpeedEngine, flats: list[Tensor], states: list[dict[str, Tensor]]) -> None:
    """Into the optimizer, and from its float32 weights into the model. Collective."""
    optimizer: Any = engine.optimizer
    for own, flat, state in zip(flat_weights(optimizer, engine.stage), flats, states, strict=True):
        own.copy_(flat)
        # Counts of steps stay on the host, where torch's optimizers keep them unless they are told otherwise.
        optimizer.state[own] = {
            key: value.to(own.device) if value.shape == own.shape else value for key, value in state.items()
        }
    if engine.stage < 3:
        optimizer.update_lp_params()
        return
    for group, own in enumerate(optimizer.fp32_partitioned_groups_flat):
        optimizer.fp16_partitioned_groups_flat[group].copy_(own)
    persistent = optimizer.persistent_parameters
    if persistent:
        persistent[0].partition(persistent, has_been_updated=False)
        persistent[0].all_gather(persistent)


def _put_whole(engine: DeepSpeedEngine, whole: dict[str, Tensor]) -> None:
    """Into tensors that are not trained. Collective where they are cut."""
    from deepspeed.runtime.zero import GatheredParameters  # noqa: PLC0415 - after open_deepspeed

    trained = set(_names(engine).values())
    for name, shown in engine.streams.kept_tensors().items():
        if name in trained:
            continue
        tensor = engine.streams.real(shown)
        if is_cut(tensor):
            with GatheredParameters([tensor], modifier_rank=0):
                if engine.context.rank == 0:
                    tensor.copy_(whole[name])
        else:
            tensor.copy_(whole[name])


def _random_file(directory: Path, rank: int) -> Path:
    return directory / f"random_{rank}.pt"


def _zero_file(directory: Path, rank: int) -> Path:
    return directory / f"zero_{rank}.pt"
