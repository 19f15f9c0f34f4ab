"""The end of a run whose data is used up before its last step: dynamic sampling and refills use more than a batch a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_core.errors import DataError
from rl_core.trainer.ppo.resume import save_interrupted

if TYPE_CHECKING:
    from rl_core.trainer.ppo.trainer import PPOTrainer


def end_early(trainer: PPOTrainer, detail: str | None) -> None:
    """Make the step before the one that was begun the last of the run: validated, saved, and said.

    The checkpoint is that of the beginning of the unfinished step. A run that goes on from it with more epochs draws the
    prompts of that step again, and is the run that had them from the start.

    Args:
        trainer: has begun a step and found no batch for it.
        detail: what there was of the batch.

    Raises:
        DataError: not one step was trained.
    """
    trainer.global_step -= 1
    step, total = trainer.global_step, trainer.total_steps
    text = f"the data was used up after {step} of {total} steps (trainer.total_epochs: {trainer.config.trainer.total_epochs})"
    text = f"{text}; {detail}" if detail else text
    if step == 0:
        msg = f"{text}. Nothing was trained: give more rows or epochs, or a smaller data.train_batch_size."
        raise DataError(msg)
    print(f"note: {text}. This is the end of the run; a larger trainer.total_epochs goes on from here.")  # noqa: T201
    schedule = trainer.schedule
    is_validated = step < trainer.first_step or schedule.test_freq == 0 or schedule.validates_after(step)
    if trainer.validator and not is_validated:
        trainer.trackers.log(step, trainer.validate())
    save_interrupted(trainer)
