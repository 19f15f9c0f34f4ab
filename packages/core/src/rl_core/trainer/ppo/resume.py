"""What of a trainer is saved, and how a resumed one takes it over."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rl_core.trainer.checkpoint import CheckpointStore, require_identity, resume_point
from rl_core.trainer.checkpoint_saver import CheckpointSaver, SavedRole

if TYPE_CHECKING:
    from rl_core.config.trainer import TrainerConfig
    from rl_core.trainer.ppo.trainer import PPOTrainer


def checkpoint_state(trainer: PPOTrainer) -> dict[str, Any]:
    """The controller's state after ``trainer.global_step``, as plain data."""
    return {
        "global_step": trainer.global_step,
        "policy_version": trainer.actor_rollout_wg.get_policy_version(),
        "sampler": trainer.sampler.state_dict(),
        "kl_controller": trainer.kl_controller.state_dict() if trainer.kl_controller else None,
    }


def checkpoint_saver(config: TrainerConfig, *, use_critic: bool) -> CheckpointSaver:
    """What saves a run; see ``rl_core.trainer.checkpoint_saver``."""
    limits = [config.max_actor_ckpt_to_keep] + ([config.max_critic_ckpt_to_keep] if use_critic else [])
    # A checkpoint is kept whole: as long as one of its roles is to be kept.
    keep = None if None in limits else max(limit for limit in limits if limit is not None)
    return CheckpointSaver(CheckpointStore(config.default_local_dir, max_to_keep=keep))


def save_checkpoint(trainer: PPOTrainer) -> dict[str, float]:
    """Write the state after ``trainer.global_step``; see ``rl_core.trainer.checkpoint`` for the layout.

    Returns:
        ``timing_s/save_checkpoint``: how long training waited.

    Raises:
        CheckpointError: the disk refused.
    """
    started = time.perf_counter()
    _save(trainer, checkpoint_state(trainer))
    return {"timing_s/save_checkpoint": time.perf_counter() - started}


def save_interrupted(trainer: PPOTrainer) -> None:
    """Keep what was trained when a step fails before its updates: a checkpoint of the step before, if there is none."""
    trainer.saver.wait()
    state, config = trainer.step_start, trainer.config.trainer
    if state is None or state["global_step"] == 0 or config.save_freq == 0:
        return
    latest = CheckpointStore(config.default_local_dir).latest()
    if latest is None or latest.step < state["global_step"]:
        _save(trainer, state)
        trainer.saver.wait()


def _save(trainer: PPOTrainer, state: dict[str, Any]) -> None:
    config = trainer.config
    by_actor, by_critic = config.actor_rollout_ref.actor.checkpoint.async_save, config.critic.checkpoint.async_save
    roles = [SavedRole("actor", trainer.actor_rollout_wg, by_actor)]
    if trainer.use_critic:
        roles.append(SavedRole("critic", trainer.critic_wg, by_critic))
    if trainer.trains_reward_model:
        roles.append(SavedRole("reward_model", trainer.reward_model_wg, by_actor))
    trainer.saver.save(state["global_step"], roles, state, _identity(trainer))


def load_checkpoint(trainer: PPOTrainer) -> None:
    """Go on from the checkpoint that ``trainer.resume_mode`` names, if there is one.

    Raises:
        CheckpointError: it belongs to another model, algorithm or data set, or it is not complete.
    """
    found = resume_point(trainer.config.trainer)
    if found is None:
        trainer.trackers.start()
        trainer.samples.start()
        trainer.parity.start()
        return
    require_identity(found, _identity(trainer))
    state = found.trainer_state()
    trainer.sampler.load_state_dict(state["sampler"])
    if trainer.kl_controller:
        trainer.kl_controller.load_state_dict(state["kl_controller"])
    trainer.actor_rollout_wg.load_checkpoint(str(found.path / "actor"), state["policy_version"])
    if trainer.use_critic:
        trainer.critic_wg.load_checkpoint(str(found.path / "critic"))
    if trainer.trains_reward_model:
        trainer.reward_model_wg.load_checkpoint(str(found.path / "reward_model"))
    trainer.global_step = state["global_step"]
    trainer.trackers.resume(trainer.global_step)
    trainer.samples.resume(trainer.global_step)
    trainer.parity.resume(trainer.global_step)


def _identity(trainer: PPOTrainer) -> dict[str, Any]:
    return {
        "model": trainer.actor_rollout_wg.model_fingerprint(),
        "adv_estimator": trainer.config.algorithm.adv_estimator,
        "critic": trainer.use_critic,
        "reward_model": trainer.config.reward_model.type if trainer.trains_reward_model else None,
        "use_kl_in_reward": trainer.config.algorithm.use_kl_in_reward,
        "optimizer": trainer.config.actor_rollout_ref.actor.optim.optimizer,
        "seed": trainer.config.trainer.seed,
        "data": trainer.loader.fingerprint,
    }
