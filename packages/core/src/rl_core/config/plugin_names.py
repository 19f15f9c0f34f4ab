"""Names of plugins among the values: which records they mean, and where the records' sections are mounted."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from rl_core.config.node import MISSING
from rl_core.config.schema import Key, Mount, Schema, mount_key
from rl_core.errors import ConfigError, PluginError, PluginNotFoundError, RlError
from rl_core.plugins import kind_label

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from rl_core.config.layout import Layout
    from rl_core.plugins import Record, Registry

ROLLOUT_NAME: Final = "actor_rollout_ref.rollout.name"

_GIVEN_OTHERWISE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "actor_rollout_ref.rollout.agent.default_agent_loop": (
            "actor_rollout_ref.rollout.agent.agent_loop_config_path"
        ),
        "reward_model.reward_manager": "reward_model.reward_manager_module.path",
    }
)
"""Key that names a plugin -> key of a file that may provide the name instead."""

_ABSENT: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("kl_estimator", "full"): (
            "The exact divergence would need both models' whole distributions at every token, which engines never hand "
            "out. low_var_kl (k3) has the same mean at the sampled tokens and is never negative."
        ),
    }
)
"""Kind and a name that commands written for other systems carry -> why there is no such plugin, and what to take."""


@dataclass
class Chosen:
    """The plugins a configuration names."""

    records: dict[str, Record] = field(default_factory=dict)
    """Key -> record. Lists of names are not in it."""

    mounts: list[Mount] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    errors: list[RlError] = field(default_factory=list)
    failed_sections: set[str] = field(default_factory=set)
    """Sections whose plugin was not found; keys of its own cannot be judged there."""


def choose(raw: DictConfig, schema: Schema, given: Mapping[str, Any], registry: Registry) -> Chosen:
    """Look every plugin name up, and replace aliases by names in ``raw``.

    A default that nothing installed provides is passed over: what needs it will say so.
    Engines are always needed.
    """
    chosen = Chosen()
    for key in schema.plugin_keys():
        for name in _names(raw, key, schema.layout):
            if name == MISSING:
                chosen.errors.append(_missing(key, registry))
            else:
                _look_up(raw, key, name, given, registry, chosen, schema.layout)
    return chosen


def _names(raw: DictConfig, key: Key, layout: Layout) -> Iterator[str]:
    from omegaconf import OmegaConf  # noqa: PLC0415 - loaded only to compose

    section, _, name = key.path.rpartition(".")
    if section and OmegaConf.is_missing(OmegaConf.select(raw, section), name):
        yield MISSING
        return
    value = OmegaConf.select(raw, key.path)
    if value is None and key.path in layout.strategies:
        value = OmegaConf.select(raw, layout.leader)
    if isinstance(value, str):
        yield value
    elif value is not None:
        yield from value


def _look_up(
    raw: DictConfig,
    key: Key,
    name: str,
    given: Mapping[str, Any],
    registry: Registry,
    chosen: Chosen,
    layout: Layout,
) -> None:
    from omegaconf import OmegaConf  # noqa: PLC0415 - loaded only to compose

    kind = key.metadata["kind"]
    bare = name.removesuffix("+") if kind == "kl_estimator" else name
    try:
        record = registry.record(kind, bare)
    except PluginError as error:
        if isinstance(error, PluginNotFoundError) and not _must_exist(raw, key, given):
            return
        chosen.failed_sections.add(key.path.rpartition(".")[0])
        why = _ABSENT.get((kind, bare))
        if OmegaConf.select(raw, key.path) is not None:
            # A role that follows the actor would only repeat the actor's error.
            chosen.errors.append(_named_by(key, error, why))
        return
    if kind in ("backend", "rollout"):
        _use_canonical_name(raw, key, name, record, chosen)
    if key.annotation.startswith("list["):
        chosen.records.setdefault(f"{key.path}[{name}]", record)
    else:
        chosen.records[key.path] = record
    _mount(key, record, registry, chosen, layout)


def _must_exist(raw: DictConfig, key: Key, given: Mapping[str, Any]) -> bool:
    from omegaconf import OmegaConf  # noqa: PLC0415 - loaded only to compose

    if key.metadata["kind"] in ("backend", "rollout"):
        return True
    if given.get(key.path, key.default) == key.default or key.metadata["kind"] == "optimizer":
        return False
    otherwise = _GIVEN_OTHERWISE.get(key.path)
    return otherwise is None or OmegaConf.select(raw, otherwise) is None


def _use_canonical_name(raw: DictConfig, key: Key, name: str, record: Record, chosen: Chosen) -> None:
    from omegaconf import OmegaConf  # noqa: PLC0415 - loaded only to compose

    if name == record.name:
        return
    if OmegaConf.select(raw, key.path) is not None:
        OmegaConf.update(raw, key.path, record.name)
        chosen.notices.append(f"{key.path}={name} is another name of {kind_label(record.kind)} {record.name!r}.")


def _mount(key: Key, record: Record, registry: Registry, chosen: Chosen, layout: Layout) -> None:
    if record.config is None or not record.mount:
        return
    # A backend is chosen role by role, so its section appears only where it is chosen.
    role = layout.strategies.get(key.path)
    points = [point for point in record.mount if point in layout.mount_paths and role in (None, point)]
    try:
        cls = registry.load_config(record.kind, record.name)
    except PluginError as error:
        if all(str(error) != str(known) for known in chosen.errors):
            chosen.errors.append(error)
        return
    if not dataclasses.is_dataclass(cls):
        message = f"{kind_label(record.kind)} {record.name!r} gives {record.config} as its keys, which is no dataclass."
        chosen.errors.append(ConfigError(message))
        return
    known = {mount.path for mount in chosen.mounts if mount.record is record}
    for point in points:
        mount = Mount(layout.mount_paths[point], mount_key(record), cls, record)
        if mount.path not in known:
            chosen.mounts.append(mount)


def _missing(key: Key, registry: Registry) -> ConfigError:
    kind = key.metadata["kind"]
    names = registry.names(kind)
    installed = f"Installed: {', '.join(names)}." if names else f"No {kind_label(kind)} is installed."
    return ConfigError(f"{key.path} has no default, and it is not set.\n  {installed} Set {key.path}=NAME.")


def _named_by(key: Key, error: PluginError, why: str | None) -> PluginError:
    named = type(error)(f"{key.path}: {error}" + (f"\n  {why}" if why else ""))
    named.__cause__ = error.__cause__
    return named
