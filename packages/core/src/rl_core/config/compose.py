"""From overrides and files to the configuration of a run.

    files, overrides --Hydra--> what was given          gather
        --> other spellings to canonical keys           aliases
        --> recipe below it                             plugin registry
        --> typed tree of core, plugin names looked up  values, plugin_names     (first pass)
        --> the plugins' sections mounted, filled       schema, values           (second pass)
        --> interpolations, derived values, limits      values, derive
        --> frozen dataclasses

Every step collects what is wrong, so that one run reports all misspelt keys and not the first.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rl_core.config.aliases import (
    ALIASES,
    OFFLINE_ALIASES,
    OFFLINE_KEEP_NEWEST,
    Renamed,
    apply_aliases,
    plugin_aliases,
)
from rl_core.config.derive import derive, derive_offline
from rl_core.config.gather import Given, gather
from rl_core.config.layout import PPO, RM, SFT, Layout
from rl_core.config.micro_batch import per_worker_micro_batches
from rl_core.config.nested import leaves, merged
from rl_core.config.node import MISSING
from rl_core.config.overrides import CliRequest
from rl_core.config.plugin_names import ROLLOUT_NAME, Chosen, choose
from rl_core.config.rm import RMTrainerConfig
from rl_core.config.root import PPOTrainerConfig
from rl_core.config.schema import Mount, Schema, core_schema, taken
from rl_core.config.secrets import redact_override
from rl_core.config.sft import SFTTrainerConfig
from rl_core.config.unknown import UnknownKeys
from rl_core.config.values import assign, limit_errors, resolve, sort_values
from rl_core.errors import ConfigError, PluginError, RlError
from rl_core.plugins import get_registry

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from rl_core.plugins import Record, Registry


@dataclass(frozen=True)
class Composed:
    """A composed configuration of any kind of run."""

    tree: Any
    """Frozen dataclasses; a plugin's section hangs at its key as the plugin's own dataclass."""

    raw: DictConfig
    """The same values as an OmegaConf tree."""

    unresolved: DictConfig
    """Before interpolations and derived values were filled in."""

    given: frozenset[str]
    """Canonical keys that were set: by an override, or by a file to something else than the default."""

    records: Mapping[str, Record]
    """Key that names a plugin -> the plugin's record."""

    schema: Schema
    """Every key there is, the plugins' included."""

    notices: tuple[str, ...] = ()
    """One line for each other spelling that was used."""

    overrides: tuple[str, ...] = ()
    """As typed, secrets replaced."""


@dataclass(frozen=True)
class Config(Composed):
    """A composed configuration of ``rl train``."""

    tree: PPOTrainerConfig


@dataclass(frozen=True)
class SFTConfig(Composed):
    """A composed configuration of ``rl sft``."""

    tree: SFTTrainerConfig


@dataclass(frozen=True)
class RMConfig(Composed):
    """A composed configuration of ``rl rm``."""

    tree: RMTrainerConfig


@dataclass
class Composition:
    """A configuration as far as it could be composed, and everything that is wrong with it."""

    config: Composed | None
    errors: tuple[RlError, ...]


@dataclass
class _State:
    registry: Registry
    given: Given
    layout: Layout
    errors: list[RlError] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def complain(self, messages: Sequence[str]) -> None:
        self.errors.extend(ConfigError(message) for message in messages)


def compose(
    overrides: Sequence[str] = (),
    *,
    config_name: str | None = None,
    config_path: str | Path | None = None,
    config_dir: str | Path | None = None,
    registry: Registry | None = None,
) -> Config:
    """Compose, check and freeze the configuration of ``rl train``.

    Args:
        overrides: ``KEY=VALUE`` in Hydra's override grammar.
        config_name: configuration file without ``.yaml``; the base name, or None, stands for the defaults.
        config_path: folder of that file.
        config_dir: further folder its defaults list may draw from.
        registry: plugins; None takes the installed ones.

    Raises:
        ConfigError: unknown, contradicting or ill-typed keys; one message names them all.
        PluginError: the only thing wrong is that a plugin is not there, or broken.
    """
    return cast("Config", _strictly(PPO, overrides, config_name, config_path, config_dir, registry))


def compose_sft(
    overrides: Sequence[str] = (),
    *,
    config_name: str | None = None,
    config_path: str | Path | None = None,
    config_dir: str | Path | None = None,
    registry: Registry | None = None,
) -> SFTConfig:
    """``compose`` for ``rl sft``."""
    return cast("SFTConfig", _strictly(SFT, overrides, config_name, config_path, config_dir, registry))


def compose_rm(
    overrides: Sequence[str] = (),
    *,
    config_name: str | None = None,
    config_path: str | Path | None = None,
    config_dir: str | Path | None = None,
    registry: Registry | None = None,
) -> RMConfig:
    """``compose`` for ``rl rm``."""
    return cast("RMConfig", _strictly(RM, overrides, config_name, config_path, config_dir, registry))


def compose_request(request: CliRequest, registry: Registry | None = None) -> Config:
    """``compose`` for a parsed command line of ``rl train``."""
    return cast("Config", compose_command(request, PPO, registry))


def compose_command(request: CliRequest, layout: Layout, registry: Registry | None = None) -> Composed:
    """``compose`` for a parsed command line of any kind of run."""
    return _strictly(layout, request.overrides, request.config_name, request.config_path, request.config_dir, registry)


def compose_leniently(
    overrides: Sequence[str] = (),
    *,
    config_name: str | None = None,
    config_path: str | Path | None = None,
    config_dir: str | Path | None = None,
    registry: Registry | None = None,
    layout: Layout = PPO,
) -> Composition:
    """``compose`` that returns what is wrong beside what could be composed; for ``rl check`` and ``rl config``.

    Raises:
        ConfigError: the files cannot be read at all.
    """
    given = gather(overrides, config_name or layout.name, config_path, config_dir, layout)
    state = _State(registry or get_registry(), given, layout)
    state.errors.extend(given.errors)
    config = None if given.errors else _build(state, overrides)
    return Composition(config, tuple(state.errors))


def _strictly(
    layout: Layout,
    overrides: Sequence[str],
    config_name: str | None,
    config_path: str | Path | None,
    config_dir: str | Path | None,
    registry: Registry | None,
) -> Composed:
    composition = compose_leniently(
        overrides,
        config_name=config_name,
        config_path=config_path,
        config_dir=config_dir,
        registry=registry,
        layout=layout,
    )
    if composition.config is None or composition.errors:
        raise join_errors(composition.errors)
    return composition.config


def join_errors(errors: Sequence[RlError]) -> RlError:
    """One error of several; a single one stays what it is."""
    if len(errors) == 1:
        return errors[0]
    return ConfigError("\n".join([f"{len(errors)} things are wrong with the configuration:", *map(_bullet, errors)]))


def to_dataclass(config: Config) -> PPOTrainerConfig:
    """The typed, frozen tree of a composed configuration of ``rl train``."""
    return config.tree


def _bullet(error: RlError) -> str:
    return "- " + str(error).replace("\n", "\n  ")


@functools.cache
def _defaults(layout: Layout) -> DictConfig:
    from omegaconf import OmegaConf  # noqa: PLC0415 - loaded only to compose

    return OmegaConf.structured(layout.root)


def _build(state: _State, overrides: Sequence[str]) -> Composed | None:
    values, layout = state.given.values, state.layout
    if layout is PPO:
        renamed = apply_aliases(values, ALIASES)
        values = merged(_recipe(values, state), values)
    else:
        renamed = apply_aliases(values, OFFLINE_ALIASES, OFFLINE_KEEP_NEWEST)

    # A copy costs a fifth of building the tree from the dataclasses.
    raw = copy.deepcopy(_defaults(layout))
    core = core_schema(layout)
    known = sort_values(values, core)
    state.complain(assign(raw, known.values, core))
    chosen = choose(raw, core, known.values, state.registry)
    state.errors.extend(chosen.errors)
    state.notices.extend(chosen.notices)

    schema = _mounted(raw, chosen, state)
    rules = [rule for mount in schema.mounts for rule in _mount_aliases(mount.section, mount.key, mount.record, schema)]
    again = apply_aliases(values, rules)
    renamed = Renamed(
        [*renamed.notices, *again.notices], [*renamed.errors, *again.errors], {**renamed.written, **again.written}
    )
    state.notices.extend(renamed.notices)
    state.complain(renamed.errors)

    everything = sort_values(values, schema)
    state.complain(everything.errors)
    state.complain(assign(raw, {p: v for p, v in everything.values.items() if p not in known.values}, schema))
    _complain_of_unknown(everything.unknown, schema, chosen, renamed, state)
    return _finish(raw, schema, chosen, everything.values, renamed, state, overrides)


def _recipe(values: Mapping[str, Any], state: _State) -> dict[str, Any]:
    name = values.get("recipe")
    if not isinstance(name, str):
        return {}
    try:
        state.registry.record("recipe", name)
    except PluginError:
        # Looked up once more with the other plugin names, where the error is collected.
        return {}
    try:
        result: dict[str, Any] = copy.deepcopy(dict(state.registry.load("recipe", name)()))
    except RlError as error:
        state.errors.append(error)
        return {}
    state.complain(apply_aliases(result, ALIASES).errors)
    return result


def _mounted(raw: DictConfig, chosen: Chosen, state: _State) -> Schema:
    from omegaconf import OmegaConf, open_dict  # noqa: PLC0415 - loaded only to compose
    from omegaconf.errors import OmegaConfBaseException  # noqa: PLC0415 - loaded only to compose

    kept: dict[str, Mount] = {}
    for mount in chosen.mounts:
        if mount.path in core_schema(state.layout).order or mount.path in kept:
            state.complain([taken(mount)])
            continue
        try:
            plugin_section = OmegaConf.structured(mount.cls)
        except OmegaConfBaseException as error:
            reason = str(error).splitlines()[0]
            state.complain(
                [f"{mount.record.config} of {mount.record.kind} {mount.record.name!r} is unusable: {reason}"]
            )
            continue
        kept[mount.path] = mount
        section = OmegaConf.select(raw, mount.section)
        with open_dict(section):
            section[mount.key] = plugin_section
    return Schema(list(kept.values()), state.layout)


def _mount_aliases(section: str, key: str, record: Record, schema: Schema) -> list[tuple[str, str]]:
    rules = plugin_aliases(section, key, (record.name, *record.aliases))
    return [(old, new) for old, new in rules if old not in schema.keys and old not in schema.sections]


def _complain_of_unknown(
    unknown: Mapping[str, Any], schema: Schema, chosen: Chosen, renamed: Renamed, state: _State
) -> None:
    explain = UnknownKeys(schema, state.registry, state.given.typed, renamed.written, state.given.source)
    for path, value in unknown.items():
        section = path.rpartition(".")[0]
        if section in chosen.failed_sections and isinstance(value, Mapping):
            # The section may well be the absent plugin's own; its absence is reported already.
            continue
        state.complain(explain.explain(path, value))


def _finish(
    raw: DictConfig,
    schema: Schema,
    chosen: Chosen,
    values: Mapping[str, Any],
    renamed: Renamed,
    state: _State,
    overrides: Sequence[str],
) -> Composed | None:
    layout = state.layout
    unresolved = copy.deepcopy(raw)
    unfilled = resolve(raw, values)
    state.complain(unfilled)
    if unfilled:
        return None
    if layout is PPO:
        derive(raw, chosen.records)
    else:
        derive_offline(raw)
    limits = limit_errors(raw, schema)
    state.complain(limits)
    if limits:
        return None  # nothing can be worked out from sizes that cannot be
    if layout is PPO:
        state.complain(per_worker_micro_batches(raw))
    tree = _tree(raw, layout)
    composed_class = {PPO.name: Config, SFT.name: SFTConfig, RM.name: RMConfig}[layout.name]
    return composed_class(
        tree=tree,
        raw=raw,
        unresolved=unresolved,
        given=frozenset(_really_given(values, schema, renamed, state.given)),
        records=dict(chosen.records),
        schema=schema,
        notices=tuple(state.notices),
        overrides=tuple(redact_override(text) for text in overrides),
    )


def _really_given(values: Mapping[str, Any], schema: Schema, renamed: Renamed, given: Given) -> list[str]:
    """Keys that were set on purpose: a dumped file repeats every default, an override means what it says."""
    result = []
    for path, value in values.items():
        written = renamed.written.get(path, path)
        is_typed = any(written == key or written.startswith(f"{key}.") for key in given.typed)
        key = schema.keys.get(path)
        if is_typed or key is None or key.default != value:
            result.append(path)
        if key is not None and key.is_free_form and isinstance(value, Mapping) and value:
            result.extend(f"{path}.{rest}" for rest, _ in leaves(value))
    return result


def _tree(raw: DictConfig, layout: Layout) -> Any:
    from omegaconf import OmegaConf  # noqa: PLC0415 - loaded only to compose

    section, _, name = ROLLOUT_NAME.rpartition(".")
    if layout is not PPO or not OmegaConf.is_missing(OmegaConf.select(raw, section), name):
        return _frozen(OmegaConf.to_object(raw), layout)
    # OmegaConf makes no object of a mandatory value that is missing; the lenient composition still wants one.
    complete = copy.deepcopy(raw)
    OmegaConf.update(complete, ROLLOUT_NAME, "none")
    tree = OmegaConf.to_object(complete)
    tree.actor_rollout_ref.rollout.name = MISSING
    return _frozen(tree, layout)


def _frozen(tree: Any, layout: Layout) -> Any:
    if not isinstance(tree, layout.root):
        msg = f"the composed tree is a {type(tree).__name__}, not a {layout.root.__name__}"
        raise TypeError(msg)
    tree.freeze()
    return tree
