"""The data set of conversations: one row of a file becomes token ids and a mask of what is learned."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rl_core.data.assistant_mask import ConversationEncoder
from rl_core.data.files import Row, read_rows
from rl_core.data.span_tokens import Encoded
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
        self._tokenizer = tokenizer
        self._encoder = ConversationEncoder(tokenizer, config.apply_chat_template_kwargs)
        rows = read_rows(files)
        if max_samples >= 0:
            rows = rows[:max_samples]
        self.num_truncated = 0
        self.num_without_target = 0
        self.items: list[dict[str, Any]] = []
        for index, row in _told(rows):
            ids, mask = self._limited(index, self._encoded(index, row))
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

    def _encoded(self, index: int, row: Row) -> Encoded:
        config = self._config
        if row.get(config.messages_key) is not None:
            messages = _messages(index, row[config.messages_key], config.messages_key)
            tools = _parsed(index, row.get(config.tools_key), config.tools_key)
            return self._encoder.encode(index, messages, tools or None)
        prompt, response = row.get(config.prompt_key), row.get(config.response_key)
        if isinstance(prompt, str) and isinstance(response, str):
            return self._text(prompt, response)
        msg = (
            f"row {index} has neither a conversation in column {config.messages_key!r} (data.messages_key) nor texts in "
            f"{config.prompt_key!r} and {config.response_key!r} (data.prompt_key, data.response_key); it has "
            f"{', '.join(sorted(row))}"
        )
        raise DataError(msg)

    def _text(self, prompt: str, response: str) -> Encoded:
        """A prompt as ``rl train`` encodes it, then the response and the token that ends a text."""
        before = list(self._tokenizer.encode(prompt))
        after = list(self._tokenizer.encode(response, add_special_tokens=False))
        if self._tokenizer.eos_token_id is not None:
            after.append(self._tokenizer.eos_token_id)
        return before + after, [False] * len(before) + [True] * len(after)

    def _limited(self, index: int, encoded: Encoded) -> Encoded:
        ids, mask = encoded
        limit = self._config.max_length
        if len(ids) > limit:
            if self._config.truncation == "error":
                msg = (
                    f"row {index}: the conversation has {len(ids)} tokens, data.max_length is {limit}. Raise it, or cut "
                    "such rows with data.truncation=left|right."
                )
                raise DataError(msg)
            kept = slice(-limit, None) if self._config.truncation == "left" else slice(limit)
            ids, mask = ids[kept], mask[kept]
            self.num_truncated += 1
        # The first token has nothing before it that could predict it.
        return ids, [False, *mask[1:]]


def _told(rows: Sequence[Row]) -> Iterator[tuple[int, Row]]:
    """The rows with their numbers; says now and then how many are done."""
    told = started = time.monotonic()
    for index, row in enumerate(rows):
        now = time.monotonic()
        if now - told >= _REPORT_SECONDS:
            told = now
            print(f"tokenised {index} of {len(rows)} rows in {now - started:.0f} s", flush=True)  # noqa: T201 - progress
        yield index, row


def _messages(index: int, value: Any, key: str) -> list[dict[str, Any]]:
    """Messages as templates expect them: plain dicts in which a field that is null is absent."""
    parsed = _parsed(index, value, key)
    if not parsed or not all(isinstance(message, Mapping) and "role" in message for message in parsed):
        msg = f"row {index}: {key} must be a list of messages with role and content; found {value!r}"
        raise DataError(msg)
    # An assistant message that only calls tools has no content; templates print a missing one as text.
    return [{"content": ""} | {name: item for name, item in m.items() if item is not None} for m in parsed]


def _parsed(index: int, value: Any, key: str) -> list[Any]:
    """A list, given as one or as its JSON text; the empty list for nothing."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            msg = f"row {index}: {key} is a text that is not valid JSON: {error}"
            raise DataError(msg) from error
    if hasattr(value, "tolist"):  # numpy, as other readers of parquet give nested lists
        value = value.tolist()
    if value is not None and not isinstance(value, list | tuple):
        msg = f"row {index}: {key} must be a list; found {value!r}"
        raise DataError(msg)
    return list(value or ())
