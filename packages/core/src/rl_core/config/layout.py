"""The kinds of run that the configuration machinery composes: one root dataclass each, and where plugins' sections hang."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from rl_core.config.node import Node
from rl_core.config.offline import OfflineConfig
from rl_core.config.rm import RMTrainerConfig
from rl_core.config.root import PPOTrainerConfig
from rl_core.config.sft import SFTTrainerConfig
from rl_core.errors import ConfigError


@dataclass(frozen=True, eq=False)
class Layout:
    """One kind of run.

    Attributes:
        name: base name of its configuration, which stands for the defaults, and of the generated file.
        command: subcommand of ``rl`` that runs it.
        root: dataclass of the whole tree.
        mount_paths: mount point of a record -> section of the tree.
        strategies: key that names a backend -> the one mount point its section gets there.
        leader: the key whose backend the other keys of ``strategies`` take when they are null.
    """

    name: str
    command: str
    root: type[Node]
    mount_paths: Mapping[str, str]
    strategies: Mapping[str, str]
    leader: str

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy in another process is the layout that is there already: layouts are told apart by identity."""
        return _layout_named, (self.name,)


PPO: Final = Layout(
    name="ppo_trainer",
    command="train",
    root=PPOTrainerConfig,
    mount_paths=MappingProxyType(
        {
            "actor": "actor_rollout_ref.actor",
            "ref": "actor_rollout_ref.ref",
            "rollout": "actor_rollout_ref.rollout",
            "critic": "critic",
            "reward_model": "reward_model",
            "algorithm": "algorithm",
            "data": "data",
            "trainer": "trainer",
        }
    ),
    strategies=MappingProxyType(
        {
            "actor_rollout_ref.actor.strategy": "actor",
            "actor_rollout_ref.ref.strategy": "ref",
            "critic.strategy": "critic",
            "reward_model.strategy": "reward_model",
        }
    ),
    leader="actor_rollout_ref.actor.strategy",
)
"""PPO, GRPO and their kin."""

SFT: Final = Layout(
    name="sft_trainer",
    command="sft",
    root=SFTTrainerConfig,
    # What a backend mounts for the policy of RL is what it needs here.
    mount_paths=MappingProxyType({"actor": "engine", "data": "data", "trainer": "trainer"}),
    strategies=MappingProxyType({"engine.strategy": "actor"}),
    leader="engine.strategy",
)
"""Supervised fine-tuning."""

RM: Final = Layout(
    name="rm_trainer",
    command="rm",
    root=RMTrainerConfig,
    mount_paths=SFT.mount_paths,
    strategies=SFT.strategies,
    leader=SFT.leader,
)
"""Training of a reward model."""

LAYOUTS: Final[tuple[Layout, ...]] = (PPO, SFT, RM)


def _layout_named(name: str) -> Layout:
    return next(layout for layout in LAYOUTS if layout.name == name)


RunTree = PPOTrainerConfig | OfflineConfig
"""The composed tree of any kind of run."""


def layout_of_command(command: str) -> Layout:
    """The layout that ``rl COMMAND`` runs.

    Raises:
        ConfigError: no such command takes a configuration.
    """
    for layout in LAYOUTS:
        if layout.command == command:
            return layout
    known = ", ".join(layout.command for layout in LAYOUTS)
    msg = f"--command is {command!r}, but the commands that take a configuration are: {known}."
    raise ConfigError(msg)
