"""The keys of a ``model`` section that speak of adapters."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from rl_core.errors import ConfigError

ALL_LINEAR: Final = "all-linear"

Layers = str | tuple[str, ...]
"""A pattern that a layer's whole name matches, or names that end it."""


@dataclass(frozen=True, kw_only=True)
class LoraSettings:
    """What adapters a model gets.

    Attributes:
        rank: rows of A and columns of B.
        alpha: what B A x is multiplied by, times the rank.
        target_modules: layers that get one; ``all-linear``: all but the output layer.
        exclude_modules: layers that get none.
        dropout: share of an adapter's inputs that is dropped in training.
        start_from: folder of an adapter, or its name on the Hub; None starts as the base model.
        export: ``merged`` or ``adapter``: what an export of the model holds.
    """

    rank: int
    alpha: float
    target_modules: Layers = ALL_LINEAR
    exclude_modules: Layers | None = None
    dropout: float = 0.0
    start_from: str | None = None
    export: str = "merged"

    @property
    def scaling(self) -> float:
        """Factor of B A x."""
        return self.alpha / self.rank


def lora_settings(section: Any) -> LoraSettings | None:
    """The adapters that a ``model`` section asks for; None where ``lora_rank`` is 0.

    Raises:
        ConfigError: alpha is missing or not above 0, or the kind of adapter is another one.
    """
    rank = getattr(section, "lora_rank", 0)
    start_from = getattr(section, "lora_adapter_path", None)
    if rank <= 0:
        if start_from:
            msg = (
                f"model.lora_adapter_path is {start_from}, but model.lora_rank is {rank}, which trains all weights of the "
                "base model without it. Set model.lora_rank to the rank of that adapter"
            )
            raise ConfigError(msg)
        return None
    alpha = getattr(section, "lora_alpha", None)
    if not alpha or not alpha > 0:
        msg = f"model.lora_rank is {rank}, and model.lora_alpha is {alpha}: adapters would add nothing. Set it above 0"
        raise ConfigError(msg)
    further = getattr(section, "lora", None)
    kind = getattr(further, "type", "lora")
    if kind != "lora":
        msg = f"model.lora.type is {kind!r}; this version trains plain 'lora' adapters only"
        raise ConfigError(msg)
    return LoraSettings(
        rank=rank,
        alpha=float(alpha),
        target_modules=_layers(getattr(section, "target_modules", None)) or ALL_LINEAR,
        exclude_modules=_layers(getattr(section, "exclude_modules", None)),
        dropout=float(getattr(further, "dropout", 0.0)),
        start_from=start_from,
        export=getattr(further, "export", "merged"),
    )


def _layers(value: str | Iterable[str] | None) -> Layers | None:
    """A plain name is a list of one; any other text is a pattern."""
    if value is None:
        return None
    if not isinstance(value, str):
        return tuple(value) or None
    if value.lower() == ALL_LINEAR:
        return ALL_LINEAR
    return (value,) if re.fullmatch(r"[\w.]+", value) else value
