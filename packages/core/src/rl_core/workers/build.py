"""From the run's configuration to engines: the one place where a role's keys become an ``EngineConfig``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from rl_core.config.schema import mount_key
from rl_core.contracts.engine import EngineConfig, EngineRole, TrainingEngine
from rl_core.contracts.rollout import RolloutEngine

if TYPE_CHECKING:
    from rl_core.config import OfflineConfig, PPOTrainerConfig, RMTrainerConfig, SFTTrainerConfig
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
        compiled=actor.use_torch_compile,
        seed=config.trainer.seed,
        sequence_parallel_size=actor.ulysses_sequence_parallel_size,
        plugin=plugin_section(actor, actor.strategy, registry),
    )
    return _engine(actor.strategy, EngineRole.POLICY, config.actor_rollout_ref.model, engine_config, context, registry)


def build_reference(config: PPOTrainerConfig, context: WorkerContext, registry: Registry) -> TrainingEngine:
    """The frozen reference policy's engine."""
    ref, rollout = config.actor_rollout_ref.ref, config.actor_rollout_ref.rollout
    actor = config.actor_rollout_ref.actor
    strategy = ref.strategy or actor.strategy
    dynamic = bool(ref.log_prob_use_dynamic_bsz)
    engine_config = EngineConfig(
        forward_micro_batch_size=None if dynamic else ref.log_prob_micro_batch_size_per_gpu,
        forward_max_tokens=ref.log_prob_max_token_len_per_gpu if dynamic else None,
        temperature=rollout.temperature,
        compiled=bool(ref.use_torch_compile),
        seed=config.trainer.seed,
        sequence_parallel_size=ref.ulysses_sequence_parallel_size or actor.ulysses_sequence_parallel_size,
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
        sequence_parallel_size=critic.ulysses_sequence_parallel_size,
        plugin=plugin_section(critic, strategy, registry),
    )
    return _engine(strategy, EngineRole.VALUE, critic.model, engine_config, context, registry)


def build_reward_model(
    config: PPOTrainerConfig,
    context: WorkerContext,
    registry: Registry,
    *,
    role: EngineRole = EngineRole.REWARD,
    model: Any = None,
    is_trained: bool = False,
    total_training_steps: int | None = None,
) -> TrainingEngine:
    """An engine of the reward model's role, with the keys of ``reward_model``.

    Args:
        config: the whole run's configuration.
        context: of the worker.
        registry: finds the backend.
        role: a model with a score head, or a language model: in training (policy) or frozen (reference).
        model: the ``model`` section of another model than ``reward_model.model``.
        is_trained: give it an optimizer.
        total_training_steps: trainer steps of the run, for the learning-rate schedule.
    """
    section = config.reward_model
    strategy = section.strategy or config.actor_rollout_ref.actor.strategy
    dynamic = bool(section.use_dynamic_bsz)
    micro_batch_size = None if dynamic else section.micro_batch_size_per_gpu
    max_tokens = section.forward_max_token_len_per_gpu if dynamic else None
    engine_config = EngineConfig(
        micro_batch_size=micro_batch_size if is_trained else None,
        max_tokens=max_tokens if is_trained else None,
        forward_micro_batch_size=micro_batch_size,
        forward_max_tokens=max_tokens,
        grad_clip=section.grad_clip if is_trained else None,
        optim=section.optim if is_trained else None,
        total_training_steps=total_training_steps if is_trained else None,
        seed=config.trainer.seed,
        sequence_parallel_size=section.ulysses_sequence_parallel_size,
        plugin=plugin_section(section, strategy, registry),
    )
    return _engine(strategy, role, section.model if model is None else model, engine_config, context, registry)


def build_sft(
    config: SFTTrainerConfig, total_training_steps: int | None, context: WorkerContext, registry: Registry
) -> TrainingEngine:
    """The engine of supervised fine-tuning."""
    return _offline(config, EngineRole.POLICY, 1, total_training_steps, context, registry)


def build_rm(
    config: RMTrainerConfig, total_training_steps: int | None, context: WorkerContext, registry: Registry
) -> TrainingEngine:
    """The engine of a reward model that learns from pairs."""
    return _offline(config, EngineRole.REWARD, 2, total_training_steps, context, registry)


def _offline(
    config: OfflineConfig,
    role: EngineRole,
    sequences: int,
    total_training_steps: int | None,
    context: WorkerContext,
    registry: Registry,
) -> TrainingEngine:
    """The engine of a run on a file, of whose rows each is so many ``sequences``.

    Passes without gradients are cut as those with.
    """
    data, section = config.data, config.engine
    size = None if data.use_dynamic_bsz else data.micro_batch_size_per_gpu
    micro_batch_size = None if size is None else sequences * size
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
        sequence_parallel_size=section.ulysses_sequence_parallel_size,
        plugin=plugin_section(section, section.strategy, registry),
    )
    return _engine(section.strategy, role, config.model, engine_config, context, registry)


def build_rollout(config: PPOTrainerConfig, context: WorkerContext, registry: Registry) -> RolloutEngine:
    """The generation engine."""
    rollout = config.actor_rollout_ref.rollout
    engine_class = cast("type[RolloutEngine]", registry.load("rollout", rollout.name))
    return engine_class(config.actor_rollout_ref.model, rollout, context)


def _engine(
    strategy: str, role: EngineRole, model: Any, config: EngineConfig, context: WorkerContext, registry: Registry
) -> TrainingEngine:
    engine_class = cast("type[TrainingEngine]", registry.load("backend", strategy))
    return engine_class(role, model, config, context)
