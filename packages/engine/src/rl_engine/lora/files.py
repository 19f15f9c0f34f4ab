"""Folders that hold an adapter as PEFT writes and reads it: ``adapter_config.json`` and one file of matrices."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from rl_core.errors import ConfigError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from rl_engine.lora.settings import Layers, LoraSettings
from rl_engine.models import resolve_folder

if TYPE_CHECKING:
    from peft import LoraConfig

CONFIG: Final = "adapter_config.json"
TENSORS: Final = "adapter_model.safetensors"

_PLAIN: Final[Mapping[str, Any]] = {
    "use_dora": False, "use_rslora": False, "bias": "none", "lora_bias": False, "rank_pattern": {}, "alpha_pattern": {},
}  # fmt: skip
"""Fields of a PEFT configuration that change the arithmetic -> the value with which they do not."""


def adapter_config(settings: LoraSettings, *, targets: Layers, **fields: Any) -> LoraConfig:
    """PEFT's configuration for ``settings``.

    Args:
        settings: of the adapters.
        targets: layers that have one.
        fields: further fields of it.
    """
    from peft import LoraConfig  # noqa: PLC0415 - runs without adapters need not load it

    alpha = settings.alpha
    return LoraConfig(
        r=settings.rank,
        lora_alpha=int(alpha) if alpha == int(alpha) else alpha,  # type: ignore[arg-type]  # PEFT computes with floats too
        target_modules=targets if isinstance(targets, str) else list(targets),
        exclude_modules=_listed(settings.exclude_modules),
        lora_dropout=settings.dropout,
        **fields,
    )


def write_adapter(directory: Path, config: LoraConfig, tensors: Mapping[str, Tensor]) -> None:
    """Write an adapter into ``directory``, which is made when it is not there."""
    directory.mkdir(parents=True, exist_ok=True)
    # Sets have no order; equal adapters shall be equal files.
    fields = {name: sorted(value) if isinstance(value, set) else value for name, value in config.to_dict().items()}
    (directory / CONFIG).write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    save_file(dict(tensors), directory / TENSORS, metadata={"format": "pt"})


def load_into(tensors: Mapping[str, Tensor], settings: LoraSettings) -> None:
    """Fill ``tensors`` from the adapter that ``settings.start_from`` names.

    Args:
        tensors: of the adapters by their names in such files.
        settings: what the adapters are made from.

    Raises:
        ConfigError: there is none, or its rank, alpha, kind, layers or shapes are others.
    """
    folder = resolve_folder(settings.start_from, "adapter")
    try:
        fields = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        stored = load_file(folder / TENSORS)
    except (OSError, ValueError, SafetensorError) as error:
        msg = f"model.lora_adapter_path is {folder}, which holds no readable {CONFIG} and {TENSORS}: {error}"
        raise ConfigError(msg) from error
    _check_fields(fields, settings, folder)
    differing = sorted(
        name
        for name in {*stored, *tensors}
        if name not in stored or name not in tensors or stored[name].shape != tensors[name].shape
    )
    if differing:
        msg = (
            f"the adapter in {folder} does not fit this run's: {len(differing)} tensors are missing on one side or have "
            f"another shape: {', '.join(differing[:3])}. Choose its layers with model.target_modules "
            f"(it was made for {fields.get('target_modules')})"
        )
        raise ConfigError(msg)
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(stored[name])


def _check_fields(fields: Mapping[str, Any], settings: LoraSettings, folder: Path) -> None:
    rank, alpha = fields.get("r"), fields.get("lora_alpha")
    if not rank or not alpha:
        msg = f"the adapter in {folder} has r={rank} and lora_alpha={alpha} in its {CONFIG}; its factor needs both"
        raise ConfigError(msg)
    if (rank, alpha) != (settings.rank, settings.alpha):
        msg = (
            f"the adapter in {folder} has rank {rank} and alpha {alpha}, this run asks for {settings.rank} and "
            f"{settings.alpha:g}. Set model.lora_rank={rank} and model.lora_alpha={alpha}"
        )
        raise ConfigError(msg)
    other = {name: fields[name] for name, plain in _PLAIN.items() if fields.get(name, plain) not in (plain, None)}
    if other or fields.get("peft_type", "LORA") != "LORA":
        msg = f"the adapter in {folder} is a {fields.get('peft_type')} with {other}; only plain LoRA is supported"
        raise ConfigError(msg)


def shortest_targets(adapted: Sequence[str], module_names: Sequence[str]) -> Layers:
    """Last parts of the names of adapted layers, where they choose exactly these; otherwise the whole names."""
    ends = sorted({name.rpartition(".")[2] for name in adapted})
    chosen = {name for name in module_names if name.rpartition(".")[2] in ends}
    return tuple(ends) if chosen == set(adapted) else tuple(sorted(adapted))


def _listed(layers: Layers | None) -> str | list[str] | None:
    return layers if layers is None or isinstance(layers, str) else list(layers)
