"""Hugging Face model folders as files: which tensor is where, and what else belongs to a model."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

import torch
from rl_core.errors import ConfigError
from safetensors import safe_open
from torch import Tensor

_INDEX: Final = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_SINGLE: Final = ("model.safetensors", "pytorch_model.bin")


def weight_files(folder: Path) -> list[Path]:
    """The files that hold the weights of the model in ``folder``, safetensors preferred; none if there are none."""
    for index, single in zip(_INDEX, _SINGLE, strict=True):
        if (folder / index).is_file():
            names: Mapping[str, str] = json.loads((folder / index).read_text(encoding="utf-8"))["weight_map"]
            return [folder / name for name in sorted(set(names.values()))]
        if (folder / single).is_file():
            return [folder / single]
    return []


def read_tensors(folder: Path, names: Collection[str]) -> dict[str, Tensor]:
    """Those of the tensors ``names`` that the model in ``folder`` has, on the CPU.

    Raises:
        ConfigError: the folder holds no weights, or a file that its index names is missing.
    """
    files = weight_files(folder)
    lost = [file.name for file in files if not file.is_file()]
    if not files or lost:
        msg = (
            f"{folder} lacks {', '.join(lost) or 'weights: ' + ' or '.join((*_SINGLE, *_INDEX))}. Copy the model again"
        )
        raise ConfigError(msg)
    found: dict[str, Tensor] = {}
    for file in files:
        found |= _read_file(file, names)
    return found


def tensor_names(folder: Path) -> set[str]:
    """Names of all tensors that the model in ``folder`` has."""
    names: set[str] = set()
    for file in weight_files(folder):
        if file.suffix == ".safetensors":
            with safe_open(file, framework="pt") as tensors:
                names |= set(tensors.keys())
        else:
            names |= set(torch.load(file, map_location="cpu", weights_only=True, mmap=True))
    return names


def require_same_names(folder: Path, wanted: Mapping[str, Collection[str]], prefix: str, model_type: str) -> None:
    """Refuse a model whose weights stand in its files under names that the weight stream does not speak.

    Args:
        folder: of the model.
        wanted: name in memory -> names under which the tensor is saved; of tied tensors, one. Files that have it as it is in
            memory are as good.
        prefix: of the backbone's names, which files of a bare backbone lack.
        model_type: for the message.

    Raises:
        ConfigError: names some that are in no file.
    """
    there = tensor_names(folder)

    def has(name: str) -> bool:
        return bool({name, name.removeprefix(f"{prefix}.")} & there)

    unknown = sorted(name for name, saved in wanted.items() if not has(name) and not all(map(has, saved)))
    if unknown:
        msg = (
            f"model type {model_type!r} keeps {len(unknown)} of its weights in memory in another form than in its files "
            f"({folder}), for example {', '.join(unknown[:2])}. They could be neither sent to a generation engine nor "
            "exported under their names, so this engine does not train it"
        )
        raise ConfigError(msg)


def _read_file(file: Path, names: Iterable[str]) -> dict[str, Tensor]:
    if file.suffix == ".safetensors":
        with safe_open(file, framework="pt") as tensors:
            there = set(tensors.keys())
            return {name: tensors.get_tensor(name) for name in names if name in there}
    whole = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    return {name: whole[name] for name in names if name in whole}
