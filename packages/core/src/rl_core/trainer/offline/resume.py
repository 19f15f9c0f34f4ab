"""What of a run on a file is saved, and how a resumed one takes it over."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rl_core.trainer.checkpoint import require_identity, resume_point
from rl_core.trainer.checkpoint_saver import SavedRole

if TYPE_CHECKING:
    from rl_core.trainer.offline.trainer import OfflineTrainer


def save_checkpoint(trainer: OfflineTrainer) -> dict[str, float]:
    """Write the state after ``trainer.global_step``; see ``rl_core.trainer.checkpoint`` for the layout.

    Returns:
        ``timing_s/save_checkpoint``: how long training waited.

    Raises:
        CheckpointError: the disk refused.
    """
    started = time.perf_counter()
    state = {"global_step": trainer.global_step, "loader": trainer.loader.state_dict()}
    role = SavedRole("actor", trainer.worker_group, trainer.config.checkpoint.async_save)
    trainer.saver.save(trainer.global_step, [role], state, _identity(trainer))
    return {"timing_s/save_checkpoint": time.perf_counter() - started}


def load_checkpoint(trainer: OfflineTrainer) -> None:
    """Go on from the checkpoint that ``trainer.resume_mode`` names, if there is one.

    Raises:
        CheckpointError: it belongs to another model, data set or kind of run, or it is not complete.
    """
    found = resume_point(trainer.config.trainer)
    if found is None:
        trainer.trackers.start()
        return
    require_identity(found, _identity(trainer))
    state = found.trainer_state()
    trainer.loader.load_state_dict(state["loader"])
    trainer.worker_group.load_checkpoint(str(found.path / "actor"))
    trainer.global_step = state["global_step"]
    trainer.trackers.resume(trainer.global_step)


def _identity(trainer: OfflineTrainer) -> dict[str, Any]:
    return {
        "kind": trainer.kind,
        "model": trainer.worker_group.model_fingerprint(),
        "optimizer": trainer.config.optim.optimizer,
        "seed": trainer.config.trainer.seed,
        "data": trainer.loader.fingerprint,
    }
