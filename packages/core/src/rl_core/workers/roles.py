"""The parts of an algorithm that a worker can play."""

from __future__ import annotations

from enum import Enum

from rl_core.errors import ConfigError


class Role(Enum):
    """A part of the algorithm; the value is its name in configurations and file names."""

    Actor = "actor"
    Rollout = "rollout"
    ActorRollout = "actor_rollout"
    Critic = "critic"
    RefPolicy = "ref"
    RewardModel = "reward_model"
    ActorRolloutRef = "actor_rollout_ref"
    Env = "env"
    TeacherModel = "teacher"

    @classmethod
    def from_string(cls, name: str) -> Role:
        """The role called ``name``, by value (``"ref"``) or by member (``"RefPolicy"``).

        Raises:
            ConfigError: no role has this name.
        """
        for role in cls:
            if name in (role.value, role.name):
                return role
        msg = f"there is no role {name!r}; choose one of {', '.join(role.value for role in cls)}"
        raise ConfigError(msg)

    def __str__(self) -> str:
        return self.value
