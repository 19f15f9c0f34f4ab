"""DAPO's soft overlong punishment: what a response loses when it comes near the length limit, or over it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rl_core.errors import ConfigError

SECTION: Final = "reward_model.reward_kwargs"
BUFFER_SECTION: Final = f"{SECTION}.overlong_buffer_cfg"

_BUFFER_KEYS: Final = ("enable", "len", "penalty_factor", "log")
_KEYS: Final = ("overlong_buffer_cfg", "max_resp_len", "overlong_filter", "scored_by")
_BUFFER_SHARE: Final = 5
"""The paper's buffer is 4,096 of 20,480 tokens, a fifth; that is the length of one that is not given."""


@dataclass(frozen=True, kw_only=True)
class OverlongSettings:
    """``reward_model.reward_kwargs`` of the reward manager ``dapo``.

    Attributes:
        is_enabled: whether there is a penalty.
        buffer: length of the buffer before the limit, in tokens.
        factor: the penalty at the limit and beyond.
        is_logged: whether penalty and share of penalised responses are logged.
        max_length: the limit, in response tokens.
        filters: whether responses that the limit cut off are kept out of training.
        scored_by: name of the reward manager that scores.
    """

    is_enabled: bool
    buffer: int
    factor: float
    is_logged: bool
    max_length: int
    filters: bool
    scored_by: str

    @classmethod
    def of(cls, options: Mapping[str, Any], max_response_length: int) -> OverlongSettings:
        """Read the section.

        Args:
            options: as given.
            max_response_length: ``data.max_response_length``, the limit unless ``max_resp_len`` says otherwise.

        Raises:
            ConfigError: a key does not exist, or a value cannot be; says which values can.
        """
        _require_known(options, _KEYS, SECTION)
        buffer_options = options.get("overlong_buffer_cfg") or {}
        if not isinstance(buffer_options, Mapping):
            msg = f"{BUFFER_SECTION} is {buffer_options!r}; it is a section with {', '.join(_BUFFER_KEYS)}."
            raise ConfigError(msg)
        _require_known(buffer_options, _BUFFER_KEYS, BUFFER_SECTION)
        max_length = _whole(options.get("max_resp_len"), max_response_length, f"{SECTION}.max_resp_len")
        default = max(1, max_length // _BUFFER_SHARE)
        settings = cls(
            is_enabled=_switch(buffer_options.get("enable"), f"{BUFFER_SECTION}.enable"),
            buffer=_whole(buffer_options.get("len"), default, f"{BUFFER_SECTION}.len"),
            factor=_factor(buffer_options.get("penalty_factor")),
            is_logged=_switch(buffer_options.get("log"), f"{BUFFER_SECTION}.log"),
            max_length=max_length,
            filters=_switch(options.get("overlong_filter"), f"{SECTION}.overlong_filter"),
            scored_by=_manager(options.get("scored_by")),
        )
        if settings.buffer > settings.max_length:
            msg = (
                f"{BUFFER_SECTION}.len is {settings.buffer}, which is longer than the longest response, "
                f"{settings.max_length} tokens ({SECTION}.max_resp_len or data.max_response_length): even an empty response "
                "would be too long. Give a shorter buffer."
            )
            raise ConfigError(msg)
        return settings


def overlong_penalty(length: int, max_length: int, buffer: int, factor: float = 1.0) -> float:
    """The punishment of a response of ``length`` tokens, never above 0.

    With L the limit and C the buffer: 0 up to L - C, falling linearly to ``-factor`` at L, ``-factor`` beyond it.

    Args:
        length: tokens of the response.
        max_length: L, in tokens.
        buffer: C, in tokens, from 1 to L.
        factor: the punishment at L.

    Source: Yu et al. 2025, arXiv:2503.14476, eq. 13 (there with factor 1).
    """
    excess = min(max(length - (max_length - buffer), 0), buffer)
    return -factor * excess / buffer if excess else 0.0


def _require_known(options: Mapping[str, Any], known: tuple[str, ...], section: str) -> None:
    if strangers := sorted(set(map(str, options)) - set(known)):
        msg = f"{section} has {', '.join(strangers)}; reward manager 'dapo' reads {', '.join(known)}."
        raise ConfigError(msg)


def _whole(value: Any, default: int, key: str) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        msg = f"{key} is {value!r}; it must be a whole number of tokens, at least 1."
        raise ConfigError(msg)
    return value


def _factor(value: Any) -> float:
    if value is None:
        return 1.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        msg = (
            f"{BUFFER_SECTION}.penalty_factor is {value!r}; it is subtracted at the limit, so it is a number from 0 on."
        )
        raise ConfigError(msg)
    return float(value)


def _switch(value: Any, key: str) -> bool:
    if value is not None and not isinstance(value, bool):
        msg = f"{key} is {value!r}; it must be true or false."
        raise ConfigError(msg)
    return bool(value)


def _manager(value: Any) -> str:
    if value is None:
        return "naive"
    if not isinstance(value, str) or value == "dapo":
        msg = f"{SECTION}.scored_by is {value!r}; it must be the name of another reward manager."
        raise ConfigError(msg)
    return value
