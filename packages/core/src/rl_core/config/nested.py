"""Small operations on nested dictionaries addressed by dotted paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rl_core.config.schema import join

ABSENT: Any = object()
"""Stands for "nothing there", which null is not."""


def get_path(tree: Mapping[str, Any], path: str) -> Any:
    """The value at ``path``, or ``ABSENT``."""
    node: Any = tree
    for part in path.split("."):
        if not isinstance(node, Mapping) or part not in node:
            return ABSENT
        node = node[part]
    return node


def set_path(tree: dict[str, Any], path: str, value: Any) -> None:
    """Put ``value`` at ``path``, making sections on the way."""
    *above, last = path.split(".")
    node = tree
    for part in above:
        child = node.get(part)
        if not isinstance(child, dict):
            child = node[part] = {}
        node = child
    node[last] = value


def pop_path(tree: dict[str, Any], path: str) -> Any:
    """Take the value at ``path`` out, and with it sections that became empty; ``ABSENT`` if there is none."""
    first, _, rest = path.partition(".")
    if first not in tree:
        return ABSENT
    if not rest:
        return tree.pop(first)
    if not isinstance(tree[first], dict):
        return ABSENT
    value = pop_path(tree[first], rest)
    if value is not ABSENT and not tree[first]:
        del tree[first]
    return value


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value that is not a non-empty section, with its path."""
    if isinstance(tree, Mapping) and tree:
        for name, value in tree.items():
            yield from leaves(value, join(path, str(name)))
    else:
        yield path, tree


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both trees in one; where both have a value, ``above`` wins."""
    result = dict(below)
    for name, value in above.items():
        under = result.get(name)
        if isinstance(under, Mapping) and isinstance(value, Mapping):
            result[name] = merged(under, value)
        else:
            result[name] = value
    return result
