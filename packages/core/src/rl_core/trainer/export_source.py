"""What ``rl export`` reads: one model of one checkpoint, and how its run had built it."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from rl_core.config.compose import compose_leniently, join_errors
from rl_core.config.layout import PPO, RM, SFT, Layout
from rl_core.config.nested import leaves, pop_path
from rl_core.config.roles import trains_reward_model
from rl_core.config.secrets import REDACTED
from rl_core.contracts.engine import EngineConfig, EngineRole
from rl_core.errors import CheckpointError, ConfigError
from rl_core.trainer.checkpoint import Checkpoint, CheckpointStore, read_checkpoint
from rl_core.workers.build import plugin_section

if TYPE_CHECKING:
    from rl_core.config.compose import Composed
    from rl_core.plugins import Registry

_CONFIG: Final = "config.yaml"
_FILE_NAME: Final = "run"


@dataclass(frozen=True)
class SavedModel:
    """One model of a checkpoint.

    Attributes:
        folder: that the engine wrote.
        strategy: name of the engine.
        role: what the model is for.
        section: its ``model`` section.
        config: of its engine, as far as reading needs it.
    """

    folder: Path
    strategy: str
    role: EngineRole
    section: Any
    config: EngineConfig


def find_checkpoint(text: str) -> Checkpoint:
    """The checkpoint that ``text`` names, or the newest of the run folder that it names.

    Raises:
        CheckpointError: there is none; says what a checkpoint is.
    """
    path = Path(text).expanduser()
    found = (read_checkpoint(path) or CheckpointStore(path).latest()) if path.is_dir() else None
    if found is None:
        what = "holds no complete checkpoint" if path.is_dir() else "is no folder"
        msg = f"{text} {what}. Give a run folder (its newest complete checkpoint) or a folder global_step_N of one."
        raise CheckpointError(msg)
    return found


def run_config(checkpoint: Checkpoint, overrides: Sequence[str], registry: Registry) -> Composed:
    """The configuration of the run that wrote ``checkpoint``, with ``overrides`` on top.

    Raises:
        CheckpointError: the run folder lacks it.
        ConfigError: it, or an override, is not valid here.
        PluginError: a plugin of the run is not installed.
    """
    from omegaconf import OmegaConf  # noqa: PLC0415 - loaded only to compose

    file = checkpoint.path.parent / _CONFIG
    if not file.is_file():
        msg = f"{file} is missing: the checkpoint does not say how to build its model. Restore it from the run folder."
        raise CheckpointError(msg)
    values: Any = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    for path, value in list(leaves(values)):
        if isinstance(value, str) and REDACTED in value:
            pop_path(values, path)
    layout: Layout = PPO if "actor_rollout_ref" in values else RM if "loss" in values else SFT
    with tempfile.TemporaryDirectory() as folder:
        OmegaConf.save(OmegaConf.create(values), Path(folder) / f"{_FILE_NAME}.yaml")
        found = compose_leniently(
            overrides, config_name=_FILE_NAME, config_path=folder, registry=registry, layout=layout
        )
    if found.config is None or found.errors:
        raise join_errors(found.errors)
    return found.config


def saved_model(checkpoint: Checkpoint, composed: Composed, name: str, registry: Registry) -> SavedModel:
    """The model called ``name`` in ``checkpoint``.

    Raises:
        CheckpointError: the checkpoint has no such model.
    """
    folder = checkpoint.path / name
    if not folder.is_dir():
        there = sorted(item.name for item in checkpoint.path.iterdir() if item.is_dir())
        msg = f"--role is {name}, but {checkpoint.path} holds {', '.join(there)}. Give one of these."
        raise CheckpointError(msg)
    strategy, role, model, section = _found(composed, name, registry)
    config = EngineConfig(seed=composed.tree.trainer.seed, plugin=plugin_section(section, strategy, registry))
    return SavedModel(folder, strategy, role, model, config)


def with_lora_export(section: Any, choice: str | None, name: str) -> Any:
    """The ``model`` section with ``choice`` (``merged`` or ``adapter``) as what an export holds; None leaves it.

    Raises:
        ConfigError: the model has no adapters.
    """
    if choice is None:
        return section
    if not section.lora_rank:
        option = "--adapter" if choice == "adapter" else "--merge-lora"
        msg = f"{option} was given, but the {name} of this run has no adapters (lora_rank is 0). Leave it out."
        raise ConfigError(msg)
    further = getattr(section, "lora", None)
    lora = SimpleNamespace(**{**(vars(further) if further else {}), "export": choice})
    return SimpleNamespace(**{**vars(section), "lora": lora})


def _found(composed: Composed, name: str, registry: Registry) -> tuple[str, EngineRole, Any, Any]:
    """Engine, role, ``model`` section, and the section that the plugin's own hangs below."""
    tree: Any = composed.tree
    if composed.schema.layout is not PPO:
        role = EngineRole.REWARD if composed.schema.layout is RM else EngineRole.POLICY
        return tree.engine.strategy, role, tree.model, tree.engine
    actor = tree.actor_rollout_ref.actor
    if name == "critic":
        return tree.critic.strategy or actor.strategy, EngineRole.VALUE, tree.critic.model, tree.critic
    if name == "reward_model":
        role = EngineRole.POLICY if trains_reward_model(tree, registry) else EngineRole.REWARD
        return tree.reward_model.strategy or actor.strategy, role, tree.reward_model.model, tree.reward_model
    return actor.strategy, EngineRole.POLICY, tree.actor_rollout_ref.model, actor
