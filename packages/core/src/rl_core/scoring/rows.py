"""What a reward function is given, read from a batch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_dataproto import DataProto


class Rows:
    """The rows of a batch as arguments of reward functions. Reads the batch, never writes into it."""

    def __init__(self, batch: DataProto, tokenizer: Any) -> None:
        """Store the batch.

        Args:
            batch: see ``RewardManager.collect``.
            tokenizer: decodes tokens.
        """
        self._columns: Mapping[str, Any] = batch.non_tensor_batch
        self._tokenizer = tokenizer
        self._responses = _tokens(batch, "responses")
        self._prompts = _tokens(batch, "prompts")
        self._readers: dict[str, Callable[[int], Any]] = {
            "data_source": lambda row: self._column("data_source", row),
            "solution_str": lambda row: self._text(self._responses[row]),
            "ground_truth": lambda row: (self._column("reward_model", row) or {}).get("ground_truth"),
            "extra_info": lambda row: self._column("extra_info", row),
            "prompt_str": lambda row: self._text(self._prompts[row]) if len(self._prompts) else None,
            "raw_prompt": lambda row: self._column("raw_prompt", row),
            "response_ids": lambda row: self._responses[row].tolist(),
            "response_length": lambda row: len(self._responses[row]),
            "uid": lambda row: self._column("uid", row),
            "num_turns": lambda row: self._column("num_turns", row, 1),
        }

    def __len__(self) -> int:
        return len(self._responses)

    @property
    def is_named(self) -> bool:
        """Each row has a name of its own."""
        return "request_id" in self._columns

    def read(self, name: str, row: int) -> Any:
        """One argument, a name of ``rl_core.scoring.call.OFFERED``."""
        return self._readers[name](row)

    def arguments(self, row: int, names: Mapping[str, str]) -> dict[str, Any]:
        """Arguments for one row: argument -> name."""
        return {argument: self.read(name, row) for argument, name in names.items()}

    def lists(self, rows: Iterable[int], names: Mapping[str, str]) -> dict[str, list[Any]]:
        """Arguments for many rows."""
        rows = list(rows)
        return {argument: [self.read(name, row) for row in rows] for argument, name in names.items()}

    def key(self, row: int) -> tuple[Any, ...]:
        """What a row is known by again in another batch: its name and its tokens."""
        name = self._column("request_id", row)
        digest = hashlib.blake2b(self._responses[row].numpy().tobytes(), digest_size=16).digest()
        source = self._column("data_source", row)
        if name is not None:
            return name, source, digest
        # A uid names the prompt of one step only where the sampler is ours.
        given = (self._column(column, row) for column in ("uid", "reward_model", "extra_info"))
        return source, digest, *map(repr, given)

    def _column(self, name: str, row: int, default: Any = None) -> Any:
        return self._columns[name][row] if name in self._columns else default

    def _text(self, ids: Any) -> str:
        text: str = self._tokenizer.decode(ids.tolist(), skip_special_tokens=True)
        return text


def _tokens(batch: DataProto, name: str) -> Sequence[Any]:
    return () if batch.batch is None or name not in batch.batch else batch.batch[name].unbind()
