"""Which base model adapters belong to: a checkpoint of adapters holds them alone, and is worth nothing on another one."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from rl_core.errors import CheckpointError
from rl_core.single_controller.base.collective import Collective
from safetensors import safe_open
from torch import Tensor

from rl_engine.checkpoint_files import weight_files


@dataclass(frozen=True, kw_only=True)
class BaseReference:
    """What a checkpoint of adapters says about what they are for.

    Attributes:
        path: of the base model, as the run gave it; it may move.
        fingerprint: of its weights.
        rank: of the adapters.
        alpha: they were trained with; it is in no tensor.
    """

    path: str
    fingerprint: str
    rank: int
    alpha: float


def fingerprint_of(folder: Path, collective: Collective) -> str:
    """16 hex digits that depend on every weight in ``folder``, but not on how files cut them. Collective."""
    own = {
        name: f"{tuple(tensor.shape)} {tensor.dtype} {_checksum(tensor)}"
        for file in weight_files(folder)[collective.rank :: collective.world_size]
        for name, tensor in _tensors(file)
    }
    found: dict[str, str] = {}
    for part in collective.all_gather_object(own):
        found |= part
    lines = "\n".join(f"{name} {text}" for name, text in sorted(found.items()))
    return hashlib.blake2b(lines.encode(), digest_size=8).hexdigest()


def check_base(saved: BaseReference | None, expected: BaseReference | None, directory: Path) -> None:
    """Refuse adapters of another base model, or with another factor.

    Args:
        saved: reference in the checkpoint; None in one of a whole model.
        expected: of this run; None where all weights are trained.
        directory: for the message.

    Raises:
        CheckpointError: they differ.
    """
    if saved is None or expected is None:
        if saved is expected:
            return
        held, wanted = ("all weights", "adapters") if saved is None else ("adapters only", "all weights")
        msg = (
            f"{directory} holds {held} of a model, and this run trains {wanted} (model.lora_rank is "
            f"{0 if expected is None else expected.rank}). Choose a checkpoint of this run, or start from an export"
        )
        raise CheckpointError(msg)
    if saved.fingerprint != expected.fingerprint:
        msg = (
            f"{directory} holds adapters for the base model {saved.path} (fingerprint {saved.fingerprint}); this run's base "
            f"is {expected.path} ({expected.fingerprint}), whose weights are others. Set model.path to the former"
        )
        raise CheckpointError(msg)
    if (saved.rank, saved.alpha) != (expected.rank, expected.alpha):
        msg = (
            f"{directory} holds adapters of rank {saved.rank} and alpha {saved.alpha:g}; this run's have rank "
            f"{expected.rank} and alpha {expected.alpha:g}. Set model.lora_rank and model.lora_alpha to the former"
        )
        raise CheckpointError(msg)


def _checksum(tensor: Tensor) -> int:
    return zlib.crc32(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data)


def _tensors(file: Path) -> Iterator[tuple[str, Tensor]]:
    if file.suffix == ".safetensors":
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - not a mapping
                yield name, tensors.get_tensor(name)
    else:
        yield from torch.load(file, map_location="cpu", weights_only=True, mmap=True).items()
