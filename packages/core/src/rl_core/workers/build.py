"""From the run's configuration to engines: the one place where a role's keys become an ``EngineConfig``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from rl_core.config.schema import mount_key
from rl_core.contracts.engine import EngineConfig, EngineRole, TrainingEngine
from rl_core.contracts.rollout import RolloutEngine
from rl_core.workers.phases import Part, State

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig, SFTTrainerConfig
    from rl_core.plugins import Registry
    from rl_core.single_controller.base import WorkerContext


def plugin_section(section: Any, strategy: str, registry: Registry) -> Any:
    """The plugin's own section below a role's ``section``; None for a plugin without one."""
    record = registry.record("backend", strategy)
    return getattr(section, mount_key(record)) if record.config else None


def build_actor(
    config: PPOTrainerConfig, total_training_steps: int | None, context: WorkerContext, registry: Registry
) -> TrainingEngine:
    """The policy's training engine."""
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    dynamic = bool(rollout.log_prob_use_dynamic_bsz)
    engine_config = EngineConfig(
        micro_batch_size=None if actor.use_dynamic_bsz else actor.ppo_micro_batch_size_per_gpu,
        max_tokens=actor.ppo_max_token_len_per_gpu if actor.use_dynamic_bsz else None,
        forward_micro_batch_size=None if dynamic else rollout.log_prob_micro_batch_size_per_gpu,
        forward_max_tokens=rollout.log_prob_max_token_len_per_gpu if dynamic else None,
        grad_clip=actor.grad_clip,
        optim=actor.optim,
        total_training_steps=total_training_steps,
        temperature=rollout.temperature,
        seed=config.trainer.seed,
        plugin=plugin_section(actor, actor.strategy, registry),
    )
    return _engine(actor.strategy, EngineRole.POLICY, config.actor_rollout_ref.model, engine_config, context, registry)


def build_reference(config: PPOTrainerConfig, context: WorkerContext, registry: Registry) -> TrainingEngine:
    """The frozen reference policy's engine."""
    ref, rollout = config.actor_rollout_ref.ref, config.actor_rollout_ref.rollout
    strategy = ref.strategy or config.actor_rollout_ref.actor.strategy
    dynamic = bool(ref.log_prob_use_dynamic_bsz)
    engine_config = EngineConfig(
        forward_micro_batch_size=None if dynamic else ref.log_prob_micro_batch_size_per_gpu,
        forward_max_tokens=ref.log_prob_max_token_len_per_gpu if dynamic else None,
        temperature=rollout.temperature,
        seed=config.trainer.seed,
        plugin=plugin_section(ref, strategy, registry),
    )
    return _engine(strategy, EngineRole.REFERENCE, config.actor_rollout_ref.model, engine_config, context, registry)


def build_critic(
    config: PPOTrainerConfig, total_training_steps: int | None, context: WorkerContext, registry: Registry
) -> TrainingEngine:
    """The value function's engine."""
    critic = config.critic
    strategy = critic.strategy or config.actor_rollout_ref.actor.strategy
    dynamic = bool(critic.use_dynamic_bsz)
    engine_config = EngineConfig(
        micro_batch_size=None if dynamic else critic.ppo_micro_batch_size_per_gpu,
        max_tokens=critic.ppo_max_token_len_per_gpu if dynamic else None,
        forward_micro_batch_size=None if dynamic else critic.forward_micro_batch_size_per_gpu,
        forward_max_tokens=critic.forward_max_token_len_per_gpu if dynamic else None,
        grad_clip=critic.grad_clip,
        optim=critic.optim,
        total_training_steps=total_training_steps,
        seed=config.trainer.seed,
        plugin=plugin_section(critic, strategy, registry),
    )
    return _engine(strategy, EngineRole.VALUE, critic.model, engine_config, context, registry)


def build_reward_model(config: PPOTrainerConfig, context: WorkerContext, registry: Registry) -> TrainingEngine:
    """The reward model's engine."""
    section = config.reward_model
    strategy = section.strategy or config.actor_rollout_ref.actor.strategy
    dynamic = bool(section.use_dynamic_bsz)
    engine_config = EngineConfig(
        forward_micro_batch_size=None if dynamic else section.micro_batch_size_per_gpu,
        forward_max_tokens=section.forward_max_token_len_per_gpu if dynamic else None,
        seed=config.trainer.seed,
        plugin=plugin_section(section, strategy, registry),
    )
    return _engine(strategy, EngineRole.REWARD, section.model, engine_config, context, registry)


def build_sft(
    config: SFTTrainerConfig, total_training_steps: int | None, context: WorkerContext, registry: Registry
) -> TrainingEngine:
    """The engine of supervised fine-tuning; passes without gradients are cut as those with."""
    data, section = config.data, config.engine
    micro_batch_size = None if data.use_dynamic_bsz else data.micro_batch_size_per_gpu
    max_tokens = data.max_token_len_per_gpu if data.use_dynamic_bsz else None
    engine_config = EngineConfig(
        micro_batch_size=micro_batch_size,
        max_tokens=max_tokens,
        forward_micro_batch_size=micro_batch_size,
        forward_max_tokens=max_tokens,
        grad_clip=section.grad_clip,
        optim=config.optim,
        total_training_steps=total_training_steps,
        seed=config.trainer.seed,
        plugin=plugin_section(section, section.strategy, registry),
    )
    return _engine(section.strategy, EngineRole.POLICY, config.model, engine_config, context, registry)


def build_rollout(config: PPOTrainerConfig, context: WorkerContext, registry: Registry) -> RolloutEngine:
    """The generation engine."""
    rollout = config.actor_rollout_ref.rollout
    engine_class = cast("type[RolloutEngine]", registry.load("rollout", rollout.name))
    return engine_class(config.actor_rollout_ref.model, rollout, context)


def evictable_states(part: Part, section: Any) -> set[State]:
    """What the configuration wants off the device between phases.

    A backend's section opts in with its boolean fields ``param_offload`` and ``optimizer_offload``, where it has them.
    """
    states: set[State] = set()
    if getattr(section, "param_offload", False):
        states |= {(part, "parameters"), (part, "gradients")}
    if getattr(section, "optimizer_offload", False):
        states.add((part, "optimizer"))
    return states


def _engine(
    strategy: str, role: EngineRole, model: Any, config: EngineConfig, context: WorkerContext, registry: Registry
) -> TrainingEngine:
    engine_class = cast("type[TrainingEngine]", registry.load("backend", strategy))
    return engine_class(role, model, config, context)
