"""From jagged rows to the padded micro-batches that the fakes compute on, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rl_core.errors import DataError
from rl_dataproto import DataProto
from rl_dataproto.jagged import Jagged
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


@dataclass(frozen=True, eq=False, slots=True)
class MicroBatch:
    """Some rows of a batch, ready for one forward. N counts their response tokens, row by row.

    Attributes:
        batch: the batch they were taken from.
        indices: where they stand in it.
        ids: [B, L] int64, prompts and responses, right-padded.
        row: [N] int64, row of each response token.
        place: [N] int64, place of each response token in its response.
        position: [N] int64, place of each response token in ``ids``.
        tokens: [N] int64, the response tokens.
        mask: [N] bool, True where the policy emitted the token; all True if the batch does not say.
        response_lengths: B numbers.
    """

    batch: DataProto
    indices: list[int]
    ids: Tensor
    row: Tensor
    place: Tensor
    position: Tensor
    tokens: Tensor
    mask: Tensor
    response_lengths: list[int]

    @property
    def is_empty(self) -> bool:
        """Whether there are no rows: another rank has more micro-batches than this one."""
        return not self.indices

    def rows(self) -> DataProto:
        """The rows with every column; copies."""
        return self.batch.select_idxs(self.indices)

    def padded(self, per_token: Tensor) -> Tensor:
        """[N] -> [B, T], differentiable. Padding is NaN: whoever reads it, in value or gradient, will notice."""
        return self._blank(per_token.dtype, torch.nan).index_put((self.row, self.place), per_token)

    def response_mask(self) -> Tensor:
        """[B, T] bool, False in padding."""
        return self._blank(torch.bool, False).index_put((self.row, self.place), self.mask)

    def _blank(self, dtype: torch.dtype, value: float) -> Tensor:
        return torch.full((len(self.indices), max(self.response_lengths, default=0)), value, dtype=dtype)


@dataclass(frozen=True, eq=False, slots=True)
class OpenBatch:
    """A batch whose rows are at hand as plain tensors.

    Attributes:
        batch: the batch.
        ids: [P + R] int64 for each row.
        responses: [R] int64 for each row.
        masks: [R] bool for each row.
    """

    batch: DataProto
    ids: tuple[Tensor, ...]
    responses: tuple[Tensor, ...]
    masks: tuple[Tensor, ...]

    @classmethod
    def of(cls, batch: DataProto) -> OpenBatch:
        """Open ``batch``.

        Raises:
            DataError: a column is missing, a response is longer than its row, or has no token in front of it that
                predicts its first one.
        """
        columns = require_columns(batch, "input_ids", "responses")
        ids = Jagged.of(columns["input_ids"]).rows()
        responses = Jagged.of(columns["responses"]).rows()
        for number, (row, response) in enumerate(zip(ids, responses, strict=True)):
            if len(response) >= len(row):
                msg = (
                    f"row {number} has {len(row)} input_ids and {len(response)} responses; input_ids hold the prompt (one "
                    "token at least) and then the response"
                )
                raise DataError(msg)
        if "response_mask" in columns.keys():  # noqa: SIM118 - a TensorDict
            masks = tuple(mask.bool() for mask in Jagged.of(columns["response_mask"]).rows())
        else:
            masks = tuple(torch.ones_like(response, dtype=torch.bool) for response in responses)
        return cls(batch, ids, responses, masks)

    def take(self, indices: Sequence[int]) -> MicroBatch:
        """Rows ``indices`` as a micro-batch; copies."""
        lengths = torch.tensor([len(self.responses[index]) for index in indices], dtype=torch.int64)
        prompts = torch.tensor([len(self.ids[index]) for index in indices], dtype=torch.int64) - lengths
        row = torch.arange(len(indices)).repeat_interleave(lengths)
        place = torch.arange(len(row)) - (lengths.cumsum(0) - lengths)[row]
        ids = [self.ids[index].long() for index in indices]
        return MicroBatch(
            batch=self.batch,
            indices=list(indices),
            ids=pad_sequence(ids, batch_first=True) if ids else torch.empty(0, 0, dtype=torch.int64),
            row=row,
            place=place,
            position=prompts[row] + place,
            tokens=torch.cat([torch.empty(0, dtype=torch.int64), *(self.responses[index] for index in indices)]),
            mask=torch.cat([torch.empty(0, dtype=torch.bool), *(self.masks[index] for index in indices)]),
            response_lengths=lengths.tolist(),
        )


def require_columns(batch: DataProto, *names: str) -> Any:
    """The tensor columns of a batch that has all of ``names``.

    Raises:
        DataError: names what is missing and what is there.
    """
    present = () if batch.batch is None else tuple(batch.batch.keys())
    missing = [name for name in names if name not in present]
    if batch.batch is None or missing:
        msg = f"the batch lacks the columns {missing}; it has {sorted(present)}. A training engine reads jagged {list(names)}"
        raise DataError(msg)
    return batch.batch


def jagged(rows: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """A jagged column of ``rows``, possibly none."""
    values = torch.cat([torch.empty(0, dtype=dtype), *rows])
    offsets = torch.tensor([0, *(len(row) for row in rows)], dtype=torch.int64).cumsum(0)
    nested: Tensor = torch.nested.nested_tensor_from_jagged(values, offsets)
    return nested
