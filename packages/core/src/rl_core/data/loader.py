"""Draws batches of rows in an order that depends on the seed and the epoch alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_core.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from rl_core.data.chat import ChatDataset
    from rl_core.data.prompts import PromptDataset


class PromptLoader:
    """Batches over several epochs; ``Stateful``. An incomplete last batch of an epoch is dropped."""

    def __init__(
        self,
        dataset: PromptDataset | ChatDataset | list[dict[str, Any]],
        *,
        batch_size: int,
        epochs: int,
        shuffle: bool,
        seed: int,
        identity: Sequence[str] = ("prompt_ids",),
    ) -> None:
        """Store the arguments; ``identity`` are the fields of an item that tell data sets apart.

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
        self._num_drawn = 0

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
        order = np.arange(len(self._dataset))
        if self._shuffle:
            order = np.random.default_rng([self._seed, epoch]).permutation(order)
        chosen = order[batch * self._batch_size : (batch + 1) * self._batch_size]
        return [self._dataset[int(row)] for row in chosen]

    def state_dict(self) -> dict[str, Any]:
        """How many batches were drawn, and from what."""
        return {"num_drawn": self._num_drawn, "num_rows": len(self._dataset), "batch_size": self._batch_size}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on after the batches that were drawn.

        Raises:
            CheckpointError: the data set or the batch size is another one.
        """
        for key, now in (("num_rows", len(self._dataset)), ("batch_size", self._batch_size)):
            if state[key] != now:
                msg = (
                    f"the checkpoint was written with {key}={state[key]}, this run has {now}: the order of prompts "
                    "would differ. Resume with the same data, or start anew with trainer.resume_mode=disable."
                )
                raise CheckpointError(msg)
        self._num_drawn = state["num_drawn"]
