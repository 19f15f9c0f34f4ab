"""What keys exist: the dataclasses of core, with the chosen plugins' dataclasses mounted among them.

This is a description only; values live in ``compose``. Nothing here imports Hydra or OmegaConf.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rl_core.config.layout import PPO, Layout
from rl_core.errors import ConfigError

if TYPE_CHECKING:
    from rl_core.plugins import Record

MOUNT_PATHS: Final = PPO.mount_paths
"""Mount point of a record -> section of the configuration of ``rl train``."""


@dataclass(frozen=True)
class Mount:
    """A plugin's dataclass at its place in the tree."""

    section: str
    """Path of the section that holds it."""

    key: str
    """Its name there."""

    cls: type
    """The dataclass."""

    record: Record
    """The plugin it belongs to."""

    @property
    def path(self) -> str:
        """Full dotted path."""
        return f"{self.section}.{self.key}"


@dataclass(frozen=True)
class Key:
    """One leaf of the configuration."""

    path: str
    annotation: str
    default: Any
    metadata: Mapping[str, Any]
    cls: type
    """The dataclass that declares it, where its help text stands."""

    owner: Record | None
    """The plugin it belongs to; None for core's own."""

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.rpartition(".")[2]

    @property
    def is_free_form(self) -> bool:
        """Whether any keys may stand below it."""
        return bool(self.metadata.get("free_form", False))


def mount_key(record: Record) -> str:
    """The name a plugin's section has: its ``config_key``, or the plugin's own name."""
    return record.config_key or record.name


class Schema:
    """Every section and key, in the order of their declaration.

    Args:
        mounts: the chosen plugins' sections.
        layout: the kind of run.

    Raises:
        ConfigError: two plugins, or a plugin and core, claim one path; or a mounted target is no dataclass.
    """

    def __init__(self, mounts: Sequence[Mount] = (), layout: Layout = PPO) -> None:
        self.layout = layout
        self.mounts = tuple(mounts)
        self.sections: dict[str, type] = {}
        self.keys: dict[str, Key] = {}
        self.order: list[str] = []
        """Paths of keys and sections as declared, a section before what is in it; the root is left out."""
        self._by_section: dict[str, list[Mount]] = {}
        for mount in self.mounts:
            self._by_section.setdefault(mount.section, []).append(mount)
        self._add_section("", layout.root, layout.root(), owner=None)

    def _add_section(self, path: str, cls: type, default: Any, owner: Record | None) -> None:
        self.sections[path] = cls
        if path:
            self.order.append(path)
        hints = _type_hints(cls)
        for field in dataclasses.fields(cls):
            child = join(path, field.name)
            value = getattr(default, field.name)
            if dataclasses.is_dataclass(hints[field.name]):
                self._add_section(child, hints[field.name], value, owner)
                continue
            metadata = dict(field.metadata)
            if _takes_mapping(hints[field.name]):
                metadata["free_form"] = True
            self.order.append(child)
            self.keys[child] = Key(child, _annotation(field.type), value, metadata, cls, owner)
        for mount in self._by_section.get(path, ()):
            self._add_mount(mount)

    def _add_mount(self, mount: Mount) -> None:
        if mount.path in self.sections or mount.path in self.keys:
            raise ConfigError(taken(mount))
        if not dataclasses.is_dataclass(mount.cls):
            msg = (
                f"{mount.record.kind} {mount.record.name!r} gives {mount.record.config} as its configuration, "
                "which is no dataclass."
            )
            raise ConfigError(msg)
        self._add_section(mount.path, mount.cls, mount.cls(), mount.record)

    def enclosing_free_form(self, path: str) -> str | None:
        """The free-form section that ``path`` lies in, or None."""
        parts = path.split(".")
        for end in range(len(parts) - 1, 0, -1):
            key = self.keys.get(".".join(parts[:end]))
            if key is not None and key.is_free_form:
                return key.path
        return None

    def owner(self, path: str) -> Record | None:
        """The plugin that a section or key belongs to."""
        for mount in self.mounts:
            if path == mount.path or path.startswith(f"{mount.path}."):
                return mount.record
        return None

    def plugin_keys(self) -> Iterator[Key]:
        """Keys whose value is the name of a plugin."""
        return (key for key in self.keys.values() if "kind" in key.metadata)


def taken(mount: Mount) -> str:
    """Message for a plugin's section whose path something else has."""
    return (
        f"{mount.record.kind} {mount.record.name!r} mounts its settings at {mount.path}, which is taken. "
        "Its record needs another config_key."
    )


@functools.cache
def core_schema(layout: Layout = PPO) -> Schema:
    """The keys of core alone."""
    return Schema(layout=layout)


def _takes_mapping(hint: Any) -> bool:
    """Whether a field's type is a dictionary, or may be one."""
    options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return any(
        option is dict or typing.get_origin(option) is dict or dataclasses.is_dataclass(option) for option in options
    )


@functools.cache
def _type_hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def join(parent: str, name: str) -> str:
    """Dotted path of ``name`` below ``parent``; the root is the empty string."""
    return f"{parent}.{name}" if parent else name


def _annotation(annotation: object) -> str:
    # With postponed evaluation the annotation is its own source text already.
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
