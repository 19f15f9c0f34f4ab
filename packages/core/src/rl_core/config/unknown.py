"""Messages for keys that no section has: a typing error, another plugin's section, or a key of another system."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from rl_core.config.layout import PPO, RM, SFT
from rl_core.config.nested import leaves
from rl_core.config.schema import Schema, join, mount_key
from rl_core.config.suggest import closest_keys
from rl_core.errors import PluginError
from rl_core.plugins import KINDS, kind_label
from rl_core.plugins.hints import known_distribution

if TYPE_CHECKING:
    from rl_core.plugins import Record, Registry

_RUN_KEYS: Final[Mapping[str, str]] = {
    "trainer.total_steps": "Give trainer.total_training_steps or trainer.total_epochs.",
    "trainer.num_workers": "Give trainer.nnodes and trainer.n_gpus_per_node.",
}
ELSEWHERE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "model_engine": "Choose the training engine by name: actor_rollout_ref.actor.strategy=NAME.",
        "actor_rollout_ref.rollout.engine": "Choose the generation engine by name: actor_rollout_ref.rollout.name=NAME.",
        **_RUN_KEYS,
    }
)
"""Keys that people look for in ``rl train``, and what to use instead."""

SFT_ELSEWHERE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "actor_rollout_ref.model": "`rl sft` has one model: model.path and its neighbours.",
        "actor_rollout_ref": "`rl sft` trains one model: see model, engine and optim.",
        "data.pad_mode": "Sequences are packed or padded by the engine; see model.use_remove_padding.",
        "data.ignore_input_ids_mismatch": "Turns must add up to the whole conversation; the message of the row says why not.",
        "data.micro_batch_size": "Give data.micro_batch_size_per_gpu, or leave it out to pack passes by tokens.",
        "checkpoint": "A checkpoint holds all that resuming needs; trainer.export_dir gets the model for others.",
        **_RUN_KEYS,
    }
)
"""The same for ``rl sft``."""

RM_ELSEWHERE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "actor_rollout_ref": "`rl rm` trains one model: see model, engine and optim.",
        "reward_model": "`rl rm` trains the reward model: see model, engine and optim; `rl train` uses it.",
        "data.messages_key": "A pair is two conversations: data.chosen_key and data.rejected_key.",
        **{key: SFT_ELSEWHERE[key] for key in ("data.pad_mode", "data.micro_batch_size", "checkpoint")},
        **_RUN_KEYS,
    }
)
"""The same for ``rl rm``."""

_ELSEWHERE: Final[Mapping[str, Mapping[str, str]]] = {
    PPO.name: ELSEWHERE,
    SFT.name: SFT_ELSEWHERE,
    RM.name: RM_ELSEWHERE,
}


class UnknownKeys:
    """Explains unknown keys against one schema and registry.

    Args:
        schema: what is known.
        registry: whose other plugins may own a key.
        typed: key of an override -> the override as it was typed.
        written: canonical path -> the spelling it was written in.
        source: configuration file, for keys that no override set.
    """

    def __init__(
        self,
        schema: Schema,
        registry: Registry,
        typed: Mapping[str, str],
        written: Mapping[str, str],
        source: str | None,
    ) -> None:
        self._schema = schema
        self._mount_paths = schema.layout.mount_paths
        self._elsewhere = _ELSEWHERE[schema.layout.name]
        # Mount point -> the key that chooses what is mounted there.
        self._role_keys = {point: key for key, point in schema.layout.strategies.items()}
        if schema.layout is PPO:
            self._role_keys["rollout"] = "actor_rollout_ref.rollout.name"
        self._registry = registry
        self._typed = typed
        self._written = written
        self._source = source

    def explain(self, path: str, value: Any) -> list[str]:
        """One message for each leaf below an unknown ``path``; none when there is nothing to say."""
        owner = self._owner(path)
        if owner is not None:
            if self._holds_only_defaults(owner, value):
                return []
            return [self._foreign(path, owner)]
        missing = self._absent_owner(path)
        if missing is not None:
            return [missing]
        return [self._misspelt(join(path, rest) if rest else path) for rest, _ in leaves(value)]

    def _owner(self, path: str) -> Record | None:
        """The installed plugin whose section would stand at ``path``, had it been chosen."""
        section, _, name = path.rpartition(".")
        points = {point for point, place in self._mount_paths.items() if place == section}
        for kind in KINDS:
            for record in self._registry.records(kind):
                names = {mount_key(record), record.name, *record.aliases}
                if record.config is not None and points & set(record.mount) and name in names:
                    return record
        return None

    def _holds_only_defaults(self, record: Record, value: Any) -> bool:
        """Whether a section repeats its plugin's defaults, as a dumped configuration does."""
        try:
            cls = self._registry.load_config(record.kind, record.name)
        except PluginError:
            # The section is refused either way; why its plugin is broken is not what was asked.
            return False
        if cls is None or not isinstance(value, Mapping):
            return False
        default = cls()
        return all(_default_at(default, path) == item for path, item in leaves(value))

    def _foreign(self, path: str, record: Record) -> str:
        section = path.rpartition(".")[0]
        role = next((point for point, place in self._mount_paths.items() if place == section), "")
        label = self._registry.entry(record.kind, record.name).label
        if record.kind in ("backend", "rollout"):
            way_out = f"Select it with {self._role_keys[role]}={record.name}, or leave the key out"
        else:
            way_out = f"Select that {kind_label(record.kind)}, or leave the key out"
        return f"{self._shown(path)} belongs to {label}, which this configuration does not select.\n  {way_out}."

    def _absent_owner(self, path: str) -> str | None:
        """A message when the section looks like one of a known plugin that is not installed."""
        section, _, name = path.rpartition(".")
        role = next((point for point in self._role_keys if self._mount_paths[point] == section), None)
        if role is None:
            return None
        kind = "rollout" if role == "rollout" else "backend"
        for candidate in (name, name.removesuffix("_config")):
            distribution = known_distribution(kind, candidate)
            if distribution is not None and candidate not in self._registry.names(kind):
                return (
                    f"{self._shown(path)} belongs to {kind} {candidate!r}, which is not installed.\n"
                    f"  Install it: pip install {distribution}"
                )
        return None

    def _misspelt(self, path: str) -> str:
        message = f"there is no key {self._shown(path)}."
        for known, hint in self._elsewhere.items():
            if path == known or path.startswith(f"{known}."):
                return f"{message}\n  {hint}"
        close = closest_keys(path, self._schema.keys)
        if close:
            return f"{message}\n  Closest: {', '.join(close)}."
        return f"{message}\n  See all keys: rl config show"

    def _shown(self, path: str) -> str:
        written = self._written.get(path, path)
        shown = written if written == path else f"{written} (read as {path})"
        if any(key == written or written.startswith(f"{key}.") for key in self._typed):
            return shown
        return f"{shown} in {self._source}" if self._source else shown


def _default_at(default: Any, path: str) -> Any:
    node = default
    for part in path.split("."):
        if not hasattr(node, part):
            return _NOTHING
        node = getattr(node, part)
    return node


_NOTHING: Final = object()
