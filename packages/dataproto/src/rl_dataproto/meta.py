"""Metadata rules: what a batch's ``meta_info`` becomes when batches are cut, merged and joined.

Every batch owns its dictionaries. :func:`copy_meta` copies dicts, lists, tuples and sets all the way down and
shares the values in them (numbers, text, arrays, tensors, config objects), so a worker that writes a metric or
a timing into its chunk never writes into another chunk, and large values are not duplicated.

Three kinds of entries are joined differently when parts come back from workers:

* ``metrics``: every worker's values, as lists in the order of the parts;
* timings (``timing``, ``timing_s``, ``timing/gen``, ...): each worker measured its own, the largest is kept,
  because the slowest worker is what the step waited for; they never conflict;
* all others mean the same for every row (``temperature``, ``eos_token_id``): they must be equal.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from rl_dataproto.compare import brief, deep_equal
from rl_dataproto.errors import ConflictError, DataProtoTypeError

METRICS = "metrics"
_CONTAINERS = (dict, list, tuple, set)


def copy_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Copy metadata: containers are new, the values in them are shared.

    Args:
        meta: Metadata; a container in it may contain itself.
    """
    memo: dict[int, Any] = {id(meta): (result := {})}
    for key, value in meta.items():
        result[key] = _copied(value, memo) if isinstance(value, _CONTAINERS) else value
    return result


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    if not isinstance(value, _CONTAINERS):
        return value
    if id(value) in memo:
        return memo[id(value)]
    if isinstance(value, dict):
        # copy.copy keeps what a subclass adds, such as the factory of a defaultdict.
        twin: Any = {} if type(value) is dict else copy.copy(value)
        memo[id(value)] = twin
        for key, item in value.items():
            twin[key] = _copied(item, memo)
        return twin
    if isinstance(value, list):
        twin = copy.copy(value)
        memo[id(value)] = twin
        twin[:] = [_copied(item, memo) for item in value]
        return twin
    if isinstance(value, set):
        return copy.copy(value)
    items = [_copied(item, memo) for item in value]
    if all(new is old for new, old in zip(items, value, strict=True)):
        return value
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


def is_timing(key: Any) -> bool:
    """Whether a metadata key holds measured times."""
    return isinstance(key, str) and key.split("/")[0].startswith("timing")


def merge_meta(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join the metadata of parts that came back from several workers.

    Args:
        parts: Metadata in the order of the rows.

    Returns:
        New metadata. ``metrics`` is a dictionary of lists; lists in it are joined, so that joining in one
        step or in several gives the same.

    Raises:
        ConflictError: Two parts give a key different values; names the key, both parts and both values.
    """
    merged: dict[str, Any] = {}
    origin: dict[str, int] = {}
    for number, part in enumerate(parts):
        for key, value in copy_meta(part).items():
            if key == METRICS:
                continue
            if key not in merged:
                merged[key], origin[key] = value, number
            elif is_timing(key):
                merged[key] = _join_timing(merged[key], value)
            elif path := _conflict(key, merged[key], value):
                msg = f"Metadata key {path[0]!r} is {path[1]} in part {origin[key]} and {path[2]} in part {number}: "
                raise ConflictError(msg + "make the parts agree, or send it as a column if it differs by row.")
    metrics = [part[METRICS] for part in parts if part.get(METRICS) is not None]
    if metrics:
        merged[METRICS] = _join_metrics(metrics)
    return merged


def union_meta(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    """Join the metadata of two batches that describe the same rows.

    Args:
        left: Metadata that is kept.
        right: Metadata that is added.

    Returns:
        New metadata. Dictionaries of metrics are joined by name, timings never conflict.

    Raises:
        ConflictError: Both sides give a key different values; names the key and both values.
    """
    merged = copy_meta(left)
    for key, value in copy_meta(right).items():
        if key not in merged or (key == METRICS and merged[key] is None):
            merged[key] = value
        elif is_timing(key):
            merged[key] = _join_timing(merged[key], value)
        elif key == METRICS and isinstance(merged[key], dict) and isinstance(value, dict):
            for name, item in value.items():
                if (path := _conflict(f"{key}.{name}", merged[key].setdefault(name, item), item)) is not None:
                    raise _union_conflict(path)
        elif not (key == METRICS and value is None) and (path := _conflict(key, merged[key], value)) is not None:
            raise _union_conflict(path)
    return merged


def _union_conflict(path: tuple[str, str, str]) -> ConflictError:
    return ConflictError(
        f"Metadata key {path[0]!r} is {path[1]} on one side of the union and {path[2]} on the other: "
        "drop or rename it on one side."
    )


def _conflict(key: str, left: Any, right: Any) -> tuple[str, str, str] | None:
    """Where two values differ: the dotted key and both values; None when they are equal."""
    if isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
        if deep_equal(left, right):
            return None
        for name in left:
            if not deep_equal(left[name], right[name]):
                return _conflict(f"{key}.{name}", left[name], right[name])
    return None if deep_equal(left, right) else (key, brief(left), brief(right))


def _join_timing(left: Any, right: Any) -> Any:
    if isinstance(left, dict) and isinstance(right, dict):
        for name, item in right.items():
            left[name] = _join_timing(left[name], item) if name in left else item
        return left
    if isinstance(left, Real) and isinstance(right, Real):
        return max(left, right)
    left_items = left if isinstance(left, list) else [left]
    return left_items + (right if isinstance(right, list) else [right])


def _join_metrics(metrics: Sequence[Any]) -> dict[str, list[Any]]:
    """Join dictionaries of metrics, or lists of such dictionaries, to a dictionary of lists."""
    joined: dict[str, list[Any]] = {}
    for entry in metrics:
        for values in entry if isinstance(entry, list) else [entry]:
            if not isinstance(values, Mapping):
                msg = f"meta_info['metrics'] holds a {type(values).__name__}: use a dictionary, or a list of them."
                raise DataProtoTypeError(msg)
            for name, value in values.items():
                joined.setdefault(name, []).extend(value if isinstance(value, list) else [value])
    return joined
