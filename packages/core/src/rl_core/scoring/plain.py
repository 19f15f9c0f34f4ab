"""A worker's answers as JSON: numbers, texts, lists and dicts, bounded in size."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rl_core.contracts.reward import RewardFailure, RewardResult, missing_reward
from rl_core.scoring.frames import MAX_ANSWER_BYTES

_MAX_DEPTH = 32
_MAX_REPR = 1_000


def encode(results: Sequence[RewardResult]) -> bytes:
    """The results as JSON; where that would be too large, results that say so."""
    try:
        encoded = _dump(results)
    except (ValueError, RecursionError) as error:
        text = f"what the function returned cannot be sent: {type(error).__name__}: {error}"
        return _dump([missing_reward(RewardFailure.INVALID, text)] * len(results))
    if len(encoded) > MAX_ANSWER_BYTES:
        text = f"the function returned {len(encoded):,} bytes; an answer may have {MAX_ANSWER_BYTES:,}"
        return _dump([missing_reward(RewardFailure.INVALID, text)] * len(results))
    return encoded


def decode(encoded: bytes) -> list[RewardResult]:
    """What ``encode`` was given.

    Raises:
        ValueError: that is not what ``encoded`` is.
    """
    try:
        return [
            RewardResult(score, extra, error, None if failure is None else RewardFailure(failure))
            for score, extra, error, failure in json.loads(encoded)
        ]
    except TypeError as error:
        msg = f"no list of results: {error}"
        raise ValueError(msg) from error


def _dump(results: Sequence[RewardResult]) -> bytes:
    rows = [(result.score, plain(result.extra), result.error, result.failure) for result in results]
    return json.dumps(rows, separators=(",", ":")).encode()


def plain(value: Any, depth: int = 0) -> Any:
    """The value in numbers, texts, lists and dicts with text keys; what is none of these as the text of its ``repr``."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if depth < _MAX_DEPTH:
        if isinstance(value, Mapping):
            return {str(key): plain(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [plain(item, depth + 1) for item in value]
        if hasattr(value, "dtype") and hasattr(value, "tolist"):  # numpy, torch; neither is worth an import
            return plain(value.tolist(), depth + 1)
    return repr(value)[:_MAX_REPR]
