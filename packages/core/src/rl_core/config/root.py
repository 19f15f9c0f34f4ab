"""The whole configuration of a run, one section each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rl_core.config.actor import ActorConfig
from rl_core.config.algorithm import AlgorithmConfig
from rl_core.config.critic import CriticConfig
from rl_core.config.data import DataConfig
from rl_core.config.model import ModelConfig
from rl_core.config.node import Node, free_form, number, plugin
from rl_core.config.profiler import GlobalProfilerConfig
from rl_core.config.ray import RayConfig
from rl_core.config.ref import RefConfig
from rl_core.config.reward import CustomRewardFunctionConfig, RewardModelConfig
from rl_core.config.rollout import RolloutConfig
from rl_core.config.trainer import TrainerConfig


@dataclass
class ActorRolloutRefConfig(Node):
    """The worker that trains the policy, samples from it, and scores it with its reference."""

    model: ModelConfig = field(default_factory=ModelConfig)
    """The policy's model."""

    actor: ActorConfig = field(default_factory=ActorConfig)
    """The policy update."""

    ref: RefConfig = field(default_factory=RefConfig)
    """The frozen reference policy."""

    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    """The generation engine."""

    hybrid_engine: bool = True
    """Training and generation share devices; ``rollout.nnodes`` separates them."""

    nccl_timeout: float = number(600, gt=0)
    """Deadline of one collective operation in seconds."""


@dataclass
class PPOTrainerConfig(Node):
    """Everything ``rl train`` takes."""

    recipe: str | None = plugin("recipe", None)
    """Named set of values that the keys given explicitly override."""

    data: DataConfig = field(default_factory=DataConfig)
    """Rows, prompts, step size."""

    actor_rollout_ref: ActorRolloutRefConfig = field(default_factory=ActorRolloutRefConfig)
    """Policy, generation, reference."""

    critic: CriticConfig = field(default_factory=CriticConfig)
    """Value function."""

    reward_model: RewardModelConfig = field(default_factory=RewardModelConfig)
    """Reward managers, and an optional scoring model."""

    custom_reward_function: CustomRewardFunctionConfig = field(default_factory=CustomRewardFunctionConfig)
    """A reward function of your own."""

    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    """Advantages, KL in the reward, filters, corrections."""

    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    """Cluster shape, length of the run, files, limits."""

    ray_kwargs: RayConfig = field(default_factory=RayConfig)
    """Ray."""

    global_profiler: GlobalProfilerConfig = field(default_factory=GlobalProfilerConfig)
    """Profiler of the run."""

    transfer_queue: dict[str, Any] = free_form()
    """Data plane of other systems; batches travel as they are here."""

    distillation: dict[str, Any] = free_form()
    """On-policy distillation from a teacher."""

    skip: dict[str, Any] = free_form()
    """Replay of cached rollouts, for debugging."""
