"""How many steps a run has, and after which of them it saves and validates. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rl_core.errors import ConfigError

if TYPE_CHECKING:
    from rl_core.config.layout import RunTree


@dataclass(frozen=True)
class StepSchedule:
    """The steps of a run, counted from 1."""

    steps_per_epoch: int
    """Full batches in one pass over the rows; a rest smaller than a batch is left for the next, reshuffled pass."""

    total_steps: int
    """Steps of the run: by epochs, or by ``trainer.total_training_steps`` when that ends first. A step of dynamic sampling
    uses up more than its prompts, so there it is the most that there can be."""

    save_freq: int
    test_freq: int
    validates_before: bool

    def is_last(self, step: int) -> bool:
        """Whether ``step`` is the run's last."""
        return step == self.total_steps

    def saves_after(self, step: int) -> bool:
        """Whether a checkpoint is written after ``step``."""
        return self._is_due(step, self.save_freq)

    def validates_after(self, step: int) -> bool:
        """Whether ``step`` is followed by a validation; step 0 is the one before training."""
        return self.validates_before if step == 0 else self._is_due(step, self.test_freq)

    def save_steps(self) -> tuple[int, ...]:
        """Every step that is followed by a checkpoint."""
        return tuple(step for step in range(1, self.total_steps + 1) if self.saves_after(step))

    def validation_steps(self) -> tuple[int, ...]:
        """Every step that is followed by a validation, 0 for the one before training."""
        return tuple(step for step in range(self.total_steps + 1) if self.validates_after(step))

    def _is_due(self, step: int, every: int) -> bool:
        if every == 0:
            return False
        return self.is_last(step) or (every > 0 and step % every == 0)


def drops_groups(tree: RunTree) -> bool:
    """Whether a step may use up more prompts than it trains on; a run of SFT never does."""
    algorithm = getattr(tree, "algorithm", None)
    return algorithm is not None and bool(algorithm.filter_groups.enable)


def generation_prompts(tree: RunTree) -> int:
    """Prompts that are drawn at a time."""
    if not drops_groups(tree):
        return tree.data.train_batch_size
    size: int | None = tree.data.gen_batch_size  # type: ignore[union-attr]
    return size or tree.data.train_batch_size


def step_schedule(tree: RunTree, dataset_size: int) -> StepSchedule:
    """Work out the steps of a run.

    Args:
        tree: composed configuration.
        dataset_size: training rows that are used, filtered ones not counted.

    Raises:
        ConfigError: the rows do not fill one batch.
    """
    trainer, batch = tree.trainer, tree.data.train_batch_size
    steps_per_epoch = dataset_size // batch
    if steps_per_epoch == 0:
        msg = (
            f"data.train_batch_size ({batch}) exceeds the {dataset_size} training rows, so no step is full. "
            f"Lower it to {dataset_size} or less, or give more rows."
        )
        raise ConfigError(msg)
    drawn = generation_prompts(tree)
    if drawn > dataset_size:
        msg = (
            f"data.gen_batch_size ({drawn}) exceeds the {dataset_size} training rows, so no generation is full. "
            f"Lower it to {dataset_size} or less, or give more rows."
        )
        raise ConfigError(msg)
    # A generation never spans two epochs, a step of several generations may.
    by_epochs = dataset_size // drawn * drawn * trainer.total_epochs // batch
    limit = trainer.total_training_steps
    return StepSchedule(
        steps_per_epoch=steps_per_epoch,
        total_steps=by_epochs if limit is None else min(limit, by_epochs),
        save_freq=trainer.save_freq,
        test_freq=trainer.test_freq,
        validates_before=trainer.val_before_train,
    )
