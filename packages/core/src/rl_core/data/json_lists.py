"""Columns that hold a list, or the JSON text of one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rl_core.errors import DataError


def parsed_list(index: int, value: Any, key: str) -> list[Any]:
    """A list, given as one or as its JSON text; the empty list for nothing.

    Raises:
        DataError: ``value`` is something else; names the row ``index`` and the column ``key``.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            msg = f"row {index}: {key} is a text that is not valid JSON: {error}"
            raise DataError(msg) from error
    if hasattr(value, "tolist"):  # numpy, as other readers of parquet give nested lists
        value = value.tolist()
    if value is not None and not isinstance(value, list | tuple):
        msg = f"row {index}: {key} must be a list; found {value!r}"
        raise DataError(msg)
    return list(value or ())


def parsed_messages(index: int, value: Any, key: str) -> list[dict[str, Any]]:
    """Messages as templates expect them: plain dicts in which a field that is null is absent.

    Raises:
        DataError: ``value`` is no list of messages with a role.
    """
    parsed = parsed_list(index, value, key)
    if not parsed or not all(isinstance(message, Mapping) and "role" in message for message in parsed):
        msg = f"row {index}: {key} must be a list of messages with role and content; found {value!r}"
        raise DataError(msg)
    # An assistant message that only calls tools has no content; templates print a missing one as text.
    return [{"content": ""} | {name: item for name, item in m.items() if item is not None} for m in parsed]
