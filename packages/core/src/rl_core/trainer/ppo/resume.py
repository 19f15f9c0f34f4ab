"""What of a trainer is saved, and how a resumed one takes it over."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_core.trainer.checkpoint import CheckpointStore, checkpoint_to_resume, require_identity

if TYPE_CHECKING:
    from rl_core.trainer.ppo.trainer import PPOTrainer


def save_checkpoint(trainer: PPOTrainer) -> None:
    """Write the state after ``trainer.global_step``; see ``rl_core.trainer.checkpoint`` for the layout.

    Raises:
        CheckpointError: the disk refused.
    """

    def write(folder: Path) -> None:
        trainer.actor_rollout_wg.save_checkpoint(str(folder / "actor"))
        if trainer.use_critic:
            trainer.critic_wg.save_checkpoint(str(folder / "critic"))

    state = {
        "global_step": trainer.global_step,
        "policy_version": trainer.actor_rollout_wg.get_policy_version(),
        "sampler": trainer.sampler.state_dict(),
        "kl_controller": trainer.kl_controller.state_dict() if trainer.kl_controller else None,
    }
    config = trainer.config.trainer
    limits = [config.max_actor_ckpt_to_keep] + ([config.max_critic_ckpt_to_keep] if trainer.use_critic else [])
    # A checkpoint is kept whole: as long as one of its roles is to be kept.
    keep = None if None in limits else max(limit for limit in limits if limit is not None)
    CheckpointStore(config.default_local_dir, max_to_keep=keep).save(
        trainer.global_step, write, state, _identity(trainer)
    )


def load_checkpoint(trainer: PPOTrainer) -> None:
    """Go on from the checkpoint that ``trainer.resume_mode`` names, if there is one.

    Raises:
        CheckpointError: it belongs to another model, algorithm or data set, or it is not complete.
    """
    config = trainer.config.trainer
    CheckpointStore(config.default_local_dir).remove_partial()
    found = checkpoint_to_resume(config.default_local_dir, config.resume_mode, config.resume_from_path)
    if found is None:
        return
    require_identity(found, _identity(trainer))
    state = found.trainer_state()
    trainer.sampler.load_state_dict(state["sampler"])
    if trainer.kl_controller:
        trainer.kl_controller.load_state_dict(state["kl_controller"])
    trainer.actor_rollout_wg.load_checkpoint(str(found.path / "actor"), state["policy_version"])
    if trainer.use_critic:
        trainer.critic_wg.load_checkpoint(str(found.path / "critic"))
    trainer.global_step = state["global_step"]
    trainer.trackers.resume(trainer.global_step)


def _identity(trainer: PPOTrainer) -> dict[str, Any]:
    return {
        "model": trainer.actor_rollout_wg.model_fingerprint(),
        "adv_estimator": trainer.config.algorithm.adv_estimator,
        "critic": trainer.use_critic,
    }
