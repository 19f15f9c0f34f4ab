"""The base of every configuration dataclass, and the helpers that declare a field's limits.

A dataclass is the single source of a section: its fields are the keys, their defaults the defaults, and
the string under a field is the help text that the generated YAML and ``rl config show --help-key`` print.
Nothing here imports Hydra or OmegaConf, so a plugin's config module stays cheap.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from rl_core.errors import ConfigError

MISSING: Any = "???"
"""Marks a key without a default; the same text OmegaConf uses, spelled here so that it need not be imported."""


class Node:
    """A configuration section that can be sealed once the run has been composed.

    Sections are ordinary dataclasses while they are built (OmegaConf turns frozen ones into read-only
    nodes, which could not take overrides). ``freeze`` seals the finished tree, because a stage that
    rewrites the configuration of another one is a bug that no log would show.
    """

    def freeze(self) -> None:
        """Refuse later assignments on this section and every section below it."""
        for value in list(vars(self).values()):
            if isinstance(value, Node):
                value.freeze()
        object.__setattr__(self, "_frozen", True)

    def __setattr__(self, name: str, value: object) -> None:
        if self.__dict__.get("_frozen", False):
            msg = (
                f"{type(self).__name__}.{name} was to be set to {value!r}, but the configuration of a run is "
                "read-only once composed. Give the key as an override, or use dataclasses.replace for a copy."
            )
            raise ConfigError(msg)
        object.__setattr__(self, name, value)


def choice(default: str | None, *choices: str) -> Any:
    """A field that takes one of ``choices`` (null too, when that is the default)."""
    return dataclasses.field(default=default, metadata={"choices": choices})


def number(
    default: float | None,
    *,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
) -> Any:
    """A numeric field with limits: at least ``ge``, more than ``gt``, at most ``le``."""
    limits = {"ge": ge, "gt": gt, "le": le}
    return dataclasses.field(default=default, metadata={k: v for k, v in limits.items() if v is not None})


def plugin(kind: str, default: str | None, *, is_open: bool = False) -> Any:
    """A field whose value is the name (or an alias) of an installed plugin of ``kind``.

    Args:
        kind: kind of the plugin's record.
        default: name, null, or ``MISSING`` when there is no default.
        is_open: other names are legal too, because something besides plugins can provide them.
    """
    return dataclasses.field(default=default, metadata={"kind": kind, "is_open": is_open})


def plugins(kind: str, *defaults: str) -> Any:
    """A list of names of installed plugins of ``kind``."""
    return dataclasses.field(default_factory=lambda: list(defaults), metadata={"kind": kind, "is_open": False})


def free_form() -> Any:
    """An empty section that takes any keys; they go to an engine or to user code as they are."""
    return dataclasses.field(default_factory=dict, metadata={"free_form": True})
