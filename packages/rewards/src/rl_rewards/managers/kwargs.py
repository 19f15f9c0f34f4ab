"""``reward_model.reward_kwargs`` of a manager: read by name, refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl_core.errors import ConfigError

KEY = "reward_model.reward_kwargs"


def read_kwargs(given: Mapping[str, Any], defaults: Mapping[str, Any], manager: str) -> dict[str, Any]:
    """``defaults`` with what is given.

    Raises:
        ConfigError: something is given that the manager does not know.
    """
    unknown = sorted(set(given) - set(defaults))
    if unknown:
        takes = ", ".join(defaults) or "none"
        msg = f"{KEY} has {', '.join(unknown)}, which reward manager {manager!r} does not take; it takes {takes}"
        raise ConfigError(msg)
    return {**defaults, **given}


def batch_size(value: Any) -> int | None:
    """A number of rows, or None.

    Raises:
        ConfigError: it is no such number.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        msg = f"{KEY}.batch_size is {value!r}; give a number of rows, at least 1, or null for all at once"
        raise ConfigError(msg)
    return value
