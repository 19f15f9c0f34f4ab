"""Draws batches of rows in an order that depends on the seed and the epoch alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_core.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from rl_core.data.chat import ChatDataset
    from rl_core.data.mixing import Mixture
    from rl_core.data.preferences import PreferenceDataset
    from rl_core.data.prompts import PromptDataset


class PromptLoader:
    """Batches over several epochs; ``Stateful``. An incomplete last batch of an epoch is dropped.

    With a mixture an epoch is as many draws as it has without, whatever sources they come from.
    """

    def __init__(
        self,
        dataset: PromptDataset | ChatDataset | PreferenceDataset | list[dict[str, Any]],
        *,
        batch_size: int,
        epochs: int,
        shuffle: bool,
        seed: int,
        identity: Sequence[str] = ("prompt_ids",),
        mixture: Mixture | None = None,
    ) -> None:
        """Store the arguments.

        Args:
            dataset: the rows.
            batch_size: rows of one draw.
            epochs: passes over the rows.
            shuffle: draw in random order, another one each epoch.
            seed: of these orders.
            identity: fields of an item that tell data sets apart.
            mixture: draw the sources of the data set in proportions; None draws every row once an epoch.

        Raises:
            ConfigError: the data set has fewer rows than one batch.
        """
        if len(dataset) < batch_size:
            msg = (
                f"data.train_batch_size is {batch_size}, but the data set has only {len(dataset)} prompts: "
                "lower it or add data"
            )
            raise ConfigError(msg)
        self._dataset = dataset
        self._batch_size = batch_size
        self._epochs = epochs
        self._shuffle = shuffle
        self._seed = seed
        self._identity = tuple(identity)
        self._mixture = mixture
        self._order: tuple[int, np.ndarray] | None = None
        self._num_drawn = 0

    @property
    def batch_size(self) -> int:
        """Rows that one draw gives."""
        return self._batch_size

    @property
    def batches_per_epoch(self) -> int:
        """Whole batches of one pass."""
        return len(self._dataset) // self._batch_size

    @property
    def fingerprint(self) -> str:
        """16 hex digits that depend on every item and their order."""
        digest = hashlib.blake2b(digest_size=8)
        for index in range(len(self._dataset)):
            for field in self._identity:
                value = self._dataset[index].get(field)
                if isinstance(value, np.ndarray):  # the text of a long array leaves out its middle
                    digest.update(f"{value.shape}\n".encode() + value.tobytes())
                else:
                    digest.update(f"{value}\n".encode())
        return digest.hexdigest()

    def __len__(self) -> int:
        """Batches of all epochs."""
        return self.batches_per_epoch * self._epochs

    @property
    def epoch(self) -> int:
        """Epoch of the next batch, from 0."""
        return self._num_drawn // self.batches_per_epoch

    def next(self) -> list[dict[str, Any]]:
        """The next batch.

        Raises:
            StopIteration: all epochs are over.
        """
        if self._num_drawn >= len(self):
            raise StopIteration
        self._num_drawn += 1
        return self.batch(self._num_drawn - 1)

    def batch(self, number: int) -> list[dict[str, Any]]:
        """The batch that the ``number``-th draw gives, from 0, whenever it is asked for."""
        epoch, batch = divmod(number, self.batches_per_epoch)
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, self._order_of(epoch))
        chosen = self._order[1][batch * self._batch_size : (batch + 1) * self._batch_size]
        return [self._dataset[int(row)] for row in chosen]

    def state_dict(self) -> dict[str, Any]:
        """How many batches were drawn, and from what."""
        return {"num_drawn": self._num_drawn} | self._settings() | ({"mixture": self._mixed()} if self._mixture else {})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on after the batches that were drawn.

        Raises:
            CheckpointError: the data set, the batch size or the order is another one.
        """
        for key, now in self._settings().items():
            if state.get(key, now) != now:
                msg = (
                    f"the checkpoint was written with {key}={state[key]}, this run has {now}: the order of prompts "
                    "would differ. Resume with the same data, or start anew with trainer.resume_mode=disable."
                )
                raise CheckpointError(msg)
        before = state.get("mixture")
        if before != self._mixed():
            msg = (
                f"the checkpoint was written with data.train_files_weights over files of {_told(before)}, this run has "
                f"{_told(self._mixed())}: the order of prompts would differ. Resume with the same weights, or start anew "
                "with trainer.resume_mode=disable."
            )
            raise CheckpointError(msg)
        self._num_drawn = state["num_drawn"]

    def _order_of(self, epoch: int) -> np.ndarray:
        """[>= batches_per_epoch * batch_size] int64: the rows of an epoch in the order they are drawn in."""
        if self._mixture is not None:
            count = self.batches_per_epoch * self._batch_size
            return self._mixture.rows(epoch * count, count, shuffle=self._shuffle, seed=self._seed)
        order = np.arange(len(self._dataset))
        return np.random.default_rng([self._seed, epoch]).permutation(order) if self._shuffle else order

    def _settings(self) -> dict[str, Any]:
        """What the order depends on beside the mixture."""
        return {
            "num_rows": len(self._dataset),
            "batch_size": self._batch_size,
            "shuffle": self._shuffle,
            "seed": self._seed,
        }

    def _mixed(self) -> list[list[float]] | None:
        """Size and weight of each source, as plain data."""
        if self._mixture is None:
            return None
        return [list(pair) for pair in zip(self._mixture.sizes, self._mixture.weights, strict=True)]


def _told(mixture: Sequence[Sequence[float]] | None) -> str:
    return "none" if mixture is None else ", ".join(f"{size:g} rows (weight {weight:g})" for size, weight in mixture)
