"""Sizes of number formats by name, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rl_core.errors import ConfigError

SIZES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("float64", "fp64"), 8),
    **dict.fromkeys(("float32", "fp32", "float"), 4),
    **dict.fromkeys(("bfloat16", "bf16", "float16", "fp16", "half"), 2),
    **dict.fromkeys(("fp8", "fp8_e4m3", "fp8_e5m2", "float8_e4m3fn", "float8_e5m2"), 1),
}


def bytes_of(name: str) -> int:
    """Bytes of one number.

    Raises:
        ConfigError: no such format.
    """
    size = SIZES.get(str(name).removeprefix("torch."))
    if size is None:
        msg = f"there is no number format {name!r}; known are {', '.join(SIZES)}"
        raise ConfigError(msg)
    return size
