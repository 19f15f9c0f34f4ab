"""The generated YAML of all keys with their help texts, and help for single keys."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rl_core.config.help_text import field_help
from rl_core.config.inert import inert_reason
from rl_core.config.layout import PPO, Layout
from rl_core.config.schema import Key, Mount, Schema, mount_key
from rl_core.config.suggest import closest_keys
from rl_core.errors import ConfigError
from rl_core.plugins import KINDS, kind_label
from rl_core.plugins.distributions import CORE_DISTRIBUTION, canonical_name

if TYPE_CHECKING:
    from rl_core.plugins import Entry, Registry

_FOLDER: Final = Path(__file__).resolve().parents[1] / "trainer" / "config"
GENERATED_FILE: Final = _FOLDER / f"{PPO.name}.yaml"

_WIDTH: Final = 110
_SHOWN: Final = re.compile(r"^# Plugins shown: (.*)$", re.MULTILINE)
_HEADER: Final = """\
# Every key of a run with its default. Generated from the dataclasses in rl_core.config; do not edit.
# Write it anew with: rl config generate --command {command} --write
# A file of your own holds only what differs; give it by --config-path FOLDER --config-name NAME.
# Plugins shown: {names}
"""


def generated_file(layout: Layout) -> Path:
    """The file that shows every key of a kind of run."""
    return _FOLDER / f"{layout.name}.yaml"


def generate_yaml(registry: Registry, distributions: Collection[str], layout: Layout = PPO) -> str:
    """All keys as YAML, each under its help text.

    Args:
        registry: plugins.
        distributions: names of the distributions whose plugins' sections are shown; core's always are.
        layout: the kind of run.

    Raises:
        ConfigError: a distribution is not installed or not usable.
    """
    names = sorted({CORE_DISTRIBUTION, *map(canonical_name, distributions)})
    usable = {canonical_name(found.name) for found in registry.distributions if found.status.is_ok}
    missing = [name for name in names if name not in usable]
    if missing:
        msg = f"the generated file shows plugins of {', '.join(missing)}, which is not installed or not usable."
        raise ConfigError(msg)
    schema = Schema(list(_mounts(registry, names, layout)), layout)
    lines = [_HEADER.format(names=", ".join(names), command=layout.command).rstrip(), *_section_lines(schema, "", 0)]
    return "\n".join(lines) + "\n"


def distributions_in(text: str) -> list[str]:
    """The distributions that a generated file says it shows."""
    found = _SHOWN.search(text)
    return [name.strip() for name in found.group(1).split(",")] if found else [CORE_DISTRIBUTION]


def key_help(schema: Schema, path: str, registry: Registry) -> str:
    """Help for one key, or for every key of a section.

    Raises:
        ConfigError: there is no such key; names the closest ones.
    """
    if path in schema.keys:
        return _explain(schema.keys[path], registry, schema.layout)
    if path in schema.sections:
        below = [key for key in schema.keys.values() if key.path.startswith(f"{path}.")]
        return "\n\n".join(_explain(key, registry, schema.layout) for key in below)
    free = schema.enclosing_free_form(path)
    if free is not None:
        return (
            f"{path}\n  lies in {free}, which takes any keys:\n{_explain(schema.keys[free], registry, schema.layout)}"
        )
    close = closest_keys(path, schema.keys)
    msg = f"there is no key {path}." + (f"\n  Closest: {', '.join(close)}." if close else "")
    raise ConfigError(msg)


def _explain(key: Key, registry: Registry, layout: Layout) -> str:
    lines = [f"{key.path}: {key.annotation} = {_scalar(key.default)}"]
    text = field_help(key.cls).get(key.name, "")
    lines += textwrap.wrap(text, _WIDTH - 10, initial_indent="  ", subsequent_indent="  ")
    if "choices" in key.metadata:
        lines.append(f"  One of: {', '.join(key.metadata['choices'])}")
    if "kind" in key.metadata:
        names = registry.names(key.metadata["kind"])
        lines.append(f"  Installed: {', '.join(names) or 'none'}")
    if key.owner is not None:
        lines.append(f"  Belongs to {kind_label(key.owner.kind)} {key.owner.name!r}.")
    reason = inert_reason(key.path, layout)
    if reason is not None:
        lines.append(f"  Has no effect: {reason}.")
    return "\n".join(lines)


def _mounts(registry: Registry, names: Sequence[str], layout: Layout) -> Iterator[Mount]:
    seen: set[str] = set()
    for entry in _entries(registry, names):
        record = entry.record
        points = [point for point in record.mount if point in layout.mount_paths]
        cls = registry.load_config(record.kind, record.name) if points else None
        for point in points if cls is not None else ():
            mount = Mount(layout.mount_paths[point], mount_key(record), cls or object, record)
            if mount.path not in seen:
                seen.add(mount.path)
                yield mount


def _entries(registry: Registry, names: Sequence[str]) -> Iterator[Entry]:
    for kind in KINDS:
        for name in registry.names(kind):
            entry = registry.entry(kind, name)
            if canonical_name(entry.distribution.name) in names:
                yield entry


def _section_lines(schema: Schema, section: str, depth: int) -> Iterator[str]:
    indent = "  " * depth
    prefix = f"{section}." if section else ""
    help_texts = field_help(schema.sections[section])
    mounted = {mount.path: mount for mount in schema.mounts}
    for position, path in enumerate(_children(schema, prefix)):
        name = path.rpartition(".")[2]
        if position or not depth:
            yield ""
        if path in mounted:
            record = mounted[path].record
            text = f"Of {kind_label(record.kind)} {record.name!r}: {record.summary}"
        else:
            text = help_texts.get(name, "")
        yield from _comment(text, path, schema, indent)
        if path in schema.sections:
            yield f"{indent}{name}:"
            yield from _section_lines(schema, path, depth + 1)
        else:
            yield f"{indent}{name}: {_scalar(schema.keys[path].default)}"


def _children(schema: Schema, prefix: str) -> list[str]:
    """Direct children of a section, keys and sections in the order of their declaration."""
    return [path for path in schema.order if path.startswith(prefix) and "." not in path[len(prefix) :]]


def _comment(text: str, path: str, schema: Schema, indent: str) -> Iterator[str]:
    key = schema.keys.get(path)
    if key is not None and "choices" in key.metadata:
        text = f"{text} One of: {', '.join(key.metadata['choices'])}."
    reason = inert_reason(path, schema.layout) if key is not None else None
    if reason is not None:
        text = f"{text} Has no effect: {reason}."
    yield from textwrap.wrap(
        text, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ", break_on_hyphens=False
    )


def _scalar(value: Any) -> str:
    """One value on one line."""
    # Loaded here because only generation and help print values.
    from omegaconf import OmegaConf  # noqa: PLC0415 - loaded only to compose

    if isinstance(value, list):
        return f"[{', '.join(map(_scalar, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_scalar(item)}" for name, item in value.items()) + "}"
    text: str = OmegaConf.to_yaml(OmegaConf.create({"value": value}))
    return text.removeprefix("value:").strip()
