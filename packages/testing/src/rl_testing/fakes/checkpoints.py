"""Checkpoint and export of the fakes: whole tensors, so that any number of ranks can read them."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rl_core.contracts.engine import EngineState
from rl_core.errors import CheckpointError
from safetensors.torch import save_file
from torch import Tensor

from rl_testing.fakes.optimizers import split_key, state_key
from rl_testing.fakes.parts import cut, gather_whole

if TYPE_CHECKING:
    from rl_testing.fakes.engine_base import EngineBase

_TENSORS = "tensors.pt"
_ABOUT = "about.json"
_WEIGHT, _OPTIMIZER, _RANDOM = "weight:", "optimizer:", "random:"


def save(engine: EngineBase, directory: Path) -> None:
    """Write weights, optimizer state, schedule and random states. Collective; rank 0 writes."""
    weights = engine.gather([entry.name for entry in engine.weight_manifest().sent])
    optimizer = {} if engine.config.optim is None else _gather_optimizer(engine, list(weights))
    streams = _random_streams(engine)
    random_states = engine.context.collective.all_gather_object(engine.generator.get_state())
    if engine.context.rank == 0:
        directory.mkdir(parents=True, exist_ok=True)
        tensors = {_WEIGHT + name: tensor for name, tensor in weights.items()}
        tensors |= {_OPTIMIZER + key: tensor for key, tensor in optimizer.items()}
        tensors |= {f"{_RANDOM}{rank}": state for rank, state in enumerate(random_states)}
        torch.save(tensors, directory / _TENSORS)
        about = {
            "role": str(engine.role),
            "shapes": {name: list(tensor.shape) for name, tensor in weights.items()},
            "schedule_step": engine.schedule_step,
            "skipped_steps": engine.skipped_steps,
            "random_streams": streams,
        }
        (directory / _ABOUT).write_text(json.dumps(about, indent=2), encoding="utf-8")
    engine.context.collective.barrier()


def load(engine: EngineBase, directory: Path) -> None:
    """Take over what ``save`` wrote. Collective; every rank reads.

    Raises:
        CheckpointError: files are missing or broken, or belong to another model; nothing was changed.
    """
    engine.parameters("load")
    if engine.config.optim is not None:
        engine.states.get(EngineState.OPTIMIZER, "load")
    about, tensors = _read(directory)
    _check_model(engine, directory, about)
    engine.states.put(EngineState.PARAMETERS, cut(_below(tensors, _WEIGHT), engine.places))
    if engine.config.optim is not None:
        engine.states.empty(EngineState.GRADIENTS)
        engine.states.put(EngineState.OPTIMIZER, _cut_optimizer(engine, _below(tensors, _OPTIMIZER)))
    engine.schedule_step = about["schedule_step"]
    engine.skipped_steps = about["skipped_steps"]
    if about["random_streams"] == _random_streams(engine):
        engine.generator.set_state(tensors[f"{_RANDOM}{engine.context.rank}"])
    else:
        engine.seed_generator()
    engine.context.collective.barrier()


def export(engine: EngineBase, directory: Path) -> None:
    """Write ``model.safetensors`` and ``config.json``; tied tensors once. Collective; rank 0 writes."""
    weights = engine.gather([entry.name for entry in engine.weight_manifest().sent])
    if engine.context.rank == 0 and engine.tiny is not None:
        directory.mkdir(parents=True, exist_ok=True)
        save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
        config = {"model_type": "rl_testing_tiny", "dtype": "float64", **dataclasses.asdict(engine.tiny)}
        (directory / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    engine.context.collective.barrier()


def _random_streams(engine: EngineBase) -> list[int]:
    """Equal for engines whose random states can be exchanged rank by rank."""
    return engine.context.collective.all_gather_object(engine.random_stream())


def _gather_optimizer(engine: EngineBase, names: list[str]) -> dict[str, Tensor]:
    """The optimizer's state of whole tensors, by ``state_key``."""
    state = engine.states.get(EngineState.OPTIMIZER, "save")
    collective = engine.context.collective
    entries = set().union(*collective.all_gather_object({split_key(key)[1] for key in state}))
    whole: dict[str, Tensor] = {}
    for entry in sorted(entries):
        parts = {split_key(key)[0]: tensor for key, tensor in state.items() if split_key(key)[1] == entry}
        for name, tensor in gather_whole(parts, engine.places, names, collective).items():
            whole[state_key(name, entry)] = tensor
    return whole


def _cut_optimizer(engine: EngineBase, whole: dict[str, Tensor]) -> dict[str, Tensor]:
    state: dict[str, Tensor] = {}
    for entry in {split_key(key)[1] for key in whole}:
        tensors = {split_key(key)[0]: tensor for key, tensor in whole.items() if split_key(key)[1] == entry}
        for name, part in cut(tensors, engine.places).items():
            state[state_key(name, entry)] = part
    return state


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}


def _check_model(engine: EngineBase, directory: Path, about: dict[str, Any]) -> None:
    found = about["shapes"]
    expected = {entry.name: list(entry.shape) for entry in engine.weight_manifest().sent}
    if found == expected and about["role"] == str(engine.role):
        return
    different = sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
    msg = (
        f"{directory} holds a {about['role']} model, this is a {engine.role} model; tensors that differ in name or "
        f"shape: {different}. Load a checkpoint of this model"
    )
    raise CheckpointError(msg)


def _read(directory: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        about = json.loads((directory / _ABOUT).read_text(encoding="utf-8"))
        tensors = torch.load(directory / _TENSORS, weights_only=True)
    except (OSError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        msg = f"{directory} is no complete checkpoint of a fake engine: {error}. Choose another global_step folder"
        raise CheckpointError(msg) from error
    return about, tensors
