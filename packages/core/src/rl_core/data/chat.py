"""The data set of conversations: one row of a file becomes token ids and a mask of what is learned."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rl_core.data.chat_row import ChatRowEncoder
from rl_core.data.files import Place, Row, read_files
from rl_core.errors import DataError

if TYPE_CHECKING:
    from rl_core.config import SFTDataConfig

_REPORT_SECONDS: Final = 10.0
"""How often a file that takes longer tells how far it is."""


class ChatDataset:
    """Rows of ``data.train_files`` or ``data.val_files``, tokenised and checked before anything is trained.

    An item holds ``input_ids`` ([L] int32, the whole conversation), ``response_mask`` ([L] bool, True on tokens that are
    learned; the first token never is, nothing predicts it) and ``index`` (of the row).

    Attributes:
        num_truncated: rows that were cut to ``data.max_length``.
        num_without_target: rows left out because no token of theirs would be learned.
    """

    def __init__(self, files: Any, config: SFTDataConfig, tokenizer: Any, *, max_samples: int = -1) -> None:
        """Read and check every row.

        Args:
            files: a path or several.
            config: the ``data`` section.
            tokenizer: of the model.
            max_samples: first rows that are used; -1 uses all.

        Raises:
            DataError: a file cannot be used, a row holds no conversation, or is too long and ``data.truncation`` is
                ``error``, or no row is left.
        """
        self._config = config
        self._encoder = ChatRowEncoder(config, tokenizer)
        rows = [(Place(file.name, n), row) for file in read_files(files) for n, row in enumerate(file.rows)]
        if max_samples >= 0:
            rows = rows[:max_samples]
        self.num_truncated = 0
        self.num_without_target = 0
        self.items: list[dict[str, Any]] = []
        for index, (place, row) in _told(rows):
            try:
                ids, mask, num_tokens = self._encoder.encode(place.number, row)
            except DataError as error:
                raise place.refused(error) from error
            self.num_truncated += num_tokens > len(ids)
            if any(mask):
                arrays = {"input_ids": np.array(ids, np.int32), "response_mask": np.array(mask, np.bool_)}
                self.items.append(arrays | {"index": index})
            else:
                self.num_without_target += 1
        if not self.items:
            msg = (
                f"none of the {len(rows)} rows has a token to learn: each needs an assistant message within the "
                f"{config.max_length} tokens of data.max_length"
            )
            raise DataError(msg)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.items[index]

    def notes(self, what: str) -> list[str]:
        """One line for each kind of row that is not used as it stands in the file.

        Args:
            what: which rows these are, for example ``training``.
        """
        total, limit = len(self.items) + self.num_without_target, self._config.max_length
        lines = []
        if self.num_truncated:
            side = self._config.truncation
            lines.append(
                f"{self.num_truncated} of {total} {what} rows are longer than data.max_length ({limit}) and cut at "
                f"their {'end' if side == 'right' else 'beginning'} (data.truncation={side})."
            )
        if self.num_without_target:
            lines.append(f"{self.num_without_target} of {total} {what} rows have no token to learn and are left out.")
        return lines + [f"{what} rows: {note}" for note in self._encoder.notes()]


def _told(rows: Sequence[tuple[Place, Row]]) -> Iterator[tuple[int, tuple[Place, Row]]]:
    """The rows with their numbers; says now and then how many are done."""
    told = started = time.monotonic()
    for index, row in enumerate(rows):
        now = time.monotonic()
        if now - told >= _REPORT_SECONDS:
            told = now
            print(f"tokenised {index} of {len(rows)} rows in {now - started:.0f} s", flush=True)  # noqa: T201 - progress
        yield index, row
