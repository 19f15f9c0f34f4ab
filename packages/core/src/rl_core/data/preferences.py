"""The data set of preference pairs: one row of a file becomes the token ids of a better and of a worse conversation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_core.data.files import Place, Row, read_files
from rl_core.data.pair_row import PairEncoder
from rl_core.errors import DataError

if TYPE_CHECKING:
    from rl_core.config import RMDataConfig


class PreferenceDataset:
    """Rows of ``data.train_files`` or ``data.val_files``, tokenised and checked before anything is trained.

    An item holds ``chosen_ids`` and ``rejected_ids`` ([L] int32, whole conversations, at least two tokens), ``margin`` (float)
    and ``index`` (of the row).

    Attributes:
        num_truncated: pairs of which a conversation was cut to ``data.max_length``.
        num_dropped: pairs left out because a conversation is longer.
        num_equal: pairs left out because both sides are the same tokens.
    """

    def __init__(self, files: Any, config: RMDataConfig, tokenizer: Any, *, max_samples: int = -1) -> None:
        """Read and check every row.

        Args:
            files: a path or several.
            config: the ``data`` section.
            tokenizer: of the reward model.
            max_samples: first rows that are used; -1 uses all.

        Raises:
            DataError: a file cannot be used, a row holds no pair, or is too long and ``data.truncation`` is ``error``, or
                no row is left.
        """
        self._config = config
        self._encoder = PairEncoder(config, tokenizer)
        self.num_truncated = 0
        self.num_dropped = 0
        self.num_equal = 0
        self.items: list[dict[str, Any]] = []
        rows = [(Place(file.name, n), row) for file in read_files(files) for n, row in enumerate(file.rows)]
        if max_samples >= 0:
            rows = rows[:max_samples]
        for index, (place, row) in enumerate(rows):
            try:
                item = self._item(place.number, row)
            except DataError as error:
                raise place.refused(error) from error
            if item is not None:
                self.items.append(item | {"index": index})
        if not self.items:
            msg = (
                f"none of the {len(rows)} pairs is left: {self.num_equal} have the same tokens on both sides, "
                f"{self.num_dropped} are longer than data.max_length ({config.max_length})"
            )
            raise DataError(msg)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.items[index]

    def notes(self, what: str) -> list[str]:
        """One line for each kind of pair that is not used as it stands in the file; ``what`` says which pairs these are."""
        total, limit = len(self.items) + self.num_dropped + self.num_equal, self._config.max_length
        longer = f"{what} pairs have a conversation longer than data.max_length ({limit})"
        lines = []
        if self.num_truncated:
            lines.append(f"{self.num_truncated} of {total} {longer}, cut at its beginning (data.truncation=left).")
        if self.num_dropped:
            lines.append(f"{self.num_dropped} of {total} {longer} and are left out (data.truncation=drop).")
        if self.num_equal:
            lines.append(
                f"{self.num_equal} of {total} {what} pairs have the same tokens on both sides and are left out."
            )
        return lines

    def _item(self, index: int, row: Row) -> dict[str, Any] | None:
        config = self._config
        sides = {key: self._encoder.encode(index, row, key) for key in (config.chosen_key, config.rejected_key)}
        for key, ids in sides.items():
            if len(ids) < 2:
                msg = f"row {index}: {key} has {len(ids)} tokens; a conversation to judge has at least two"
                raise DataError(msg)
        chosen, rejected = sides[config.chosen_key], sides[config.rejected_key]
        if chosen == rejected:
            self.num_equal += 1
            return None
        limit = config.max_length
        longest = max(len(chosen), len(rejected))
        if longest > limit:
            if config.truncation == "error":
                msg = (
                    f"row {index}: a conversation of the pair has {longest} tokens, data.max_length is {limit}. Raise it, or "
                    "cut such conversations with data.truncation=left, or leave such pairs out with data.truncation=drop."
                )
                raise DataError(msg)
            if config.truncation == "drop":
                self.num_dropped += 1
                return None
            self.num_truncated += 1
        return {
            "chosen_ids": np.array(chosen[-limit:], np.int32),
            "rejected_ids": np.array(rejected[-limit:], np.int32),
            "margin": _margin(index, row, config.margin_key),
        }


def _margin(index: int, row: Row, key: str) -> float:
    value = row.get(key)
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        msg = f"row {index}: {key} must be a finite number (data.margin_key); found {value!r}"
        raise DataError(msg)
    return float(value)
