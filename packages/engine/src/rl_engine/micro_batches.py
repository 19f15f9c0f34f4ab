"""How the rows of a batch are cut into forward passes, and put back in order.

Every rank makes the same number of passes: ranks meet inside each of them. One that has fewer of its own adds empty ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from rl_core.contracts.engine import ROWS_TOGETHER_KEY
from rl_core.errors import ConfigError, DataError
from rl_core.single_controller.base.collective import Collective
from rl_dataproto import DataProto, lengths, pad_jagged, token_budget_micro_batches
from rl_dataproto.jagged import Jagged
from torch import Tensor

from rl_engine.images import has_images, images_of, require_images_fit
from rl_engine.packing import ModelInputs, pack, pad


@dataclass(frozen=True, eq=False, slots=True)
class MicroBatch:
    """Some rows of a batch, ready for one forward pass. N counts their response tokens, row by row.

    Attributes:
        rows: the rows with every column, on the engine's device.
        indices: where they stand in the batch they were taken from.
        inputs: the tensors of the pass.
        row_lengths: tokens of each row.
        response_lengths: response tokens of each row.
        is_last: no other pass follows on any rank.
    """

    rows: DataProto
    indices: list[int]
    inputs: ModelInputs
    row_lengths: list[int]
    response_lengths: list[int]
    is_last: bool

    @property
    def is_empty(self) -> bool:
        """Whether there are no rows: another rank has more passes than this one."""
        return not self.indices

    def padded(self, per_token: Tensor) -> Tensor:
        """[N] -> [B, T], differentiable, 0 in padding; T is the longest response."""
        sizes = torch.tensor(self.response_lengths, dtype=torch.int64, device=per_token.device)
        mask = torch.arange(max(self.response_lengths, default=0), device=per_token.device) < sizes[:, None]
        return per_token.new_zeros(mask.shape).masked_scatter(mask, per_token)

    def response_mask(self) -> Tensor:
        """[B, T] bool, False in padding."""
        width = max(self.response_lengths, default=0)
        return pad_jagged(column(self.rows, "response_mask"), 0, length=width).bool()


def cut_units(
    row_lengths: Sequence[int], size: int | None, max_tokens: int | None, *, padded: bool = False, together: int = 1
) -> list[list[int]]:
    """``cut_rows`` that keeps every ``together`` consecutive rows in one pass; see ``ROWS_TOGETHER_KEY``.

    Raises:
        DataError: the rows do not make whole units.
    """
    if together == 1:
        return cut_rows(row_lengths, size, max_tokens, padded=padded)
    if len(row_lengths) % together:
        msg = f"the batch has {len(row_lengths)} rows, of which every {together} belong together; its end is not whole"
        raise DataError(msg)
    units = [row_lengths[first : first + together] for first in range(0, len(row_lengths), together)]
    costs = [together * max(unit) if padded else sum(unit) for unit in units]
    whole = size if size is None or size < 1 else max(size // together, 1)
    cuts = cut_rows(costs, whole, max_tokens, padded=padded)
    return [[unit * together + row for unit in cut for row in range(together)] for cut in cuts]


def cut_rows(
    row_lengths: Sequence[int], size: int | None, max_tokens: int | None, *, padded: bool = False
) -> list[list[int]]:
    """Row numbers of each pass; every row once, none empty.

    Args:
        row_lengths: tokens of each row.
        size: rows in a pass; wins over ``max_tokens``. Rows then stay in order.
        max_tokens: tokens in a pass; a longer row has one to itself. None for both makes one pass.
        padded: count what padding to the longest row of a pass adds.

    Raises:
        ConfigError: a limit is below 1.
    """
    if min(size or 1, 1 if max_tokens is None else max_tokens) < 1 or size == 0:
        msg = f"a micro-batch holds at least one row and one token; asked for {size} rows and {max_tokens} tokens"
        raise ConfigError(msg)
    rows = list(range(len(row_lengths)))
    if not rows:
        return []
    if size is not None:
        return [rows[start : start + size] for start in range(0, len(rows), size)]
    if max_tokens is None:
        return [rows]
    return _padded_budget(row_lengths, max_tokens) if padded else token_budget_micro_batches(row_lengths, max_tokens)


def _padded_budget(row_lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Longest rows first: then the first row of a pass says how wide it is, and neighbours waste little."""
    cuts: list[list[int]] = []
    for row in sorted(range(len(row_lengths)), key=lambda number: (-row_lengths[number], number)):
        if cuts and row_lengths[cuts[-1][0]] * (len(cuts[-1]) + 1) <= max_tokens:
            cuts[-1].append(row)
        else:
            cuts.append([row])
    return sorted((sorted(cut) for cut in cuts), key=lambda cut: cut[0])


def micro_batches(
    batch: DataProto,
    *,
    size: int | None,
    max_tokens: int | None,
    padded: bool,
    shift: int,
    collective: Collective,
    device: torch.device | str,
) -> Iterator[MicroBatch]:
    """The passes of this rank. Collective: every rank yields equally many.

    Args:
        batch: this rank's rows, possibly none; jagged ``input_ids`` and ``responses``, and images where there are some. Not
            written to.
        size: rows in a pass, or None.
        max_tokens: tokens in a pass, or None.
        padded: pad rows instead of packing them.
        shift: as for ``pack``.
        collective: of all ranks that compute together.
        device: where the passes run.

    Raises:
        ConfigError: a limit is below 1, or there are images that cannot be computed in this way.
        DataError: a column is missing, a response is not the end of a row that has a token before it, or rows that belong
            together are not all there.
    """
    require_columns(batch, "input_ids", "responses")
    check_rows(batch)
    together = batch.meta_info.get(ROWS_TOGETHER_KEY, 1)
    row_lengths = lengths(column(batch, "input_ids")).tolist()
    cuts = cut_units(row_lengths, size, max_tokens, padded=padded, together=together)
    answers = collective.all_gather_object((len(cuts), has_images(batch)))
    require_images_fit(any(found for _, found in answers), padded=padded, num_ranks=len(answers))
    most = max(count for count, _ in answers)
    for number in range(most):
        indices = cuts[number] if number < len(cuts) else []
        yield _take(batch, indices, padded=padded, shift=shift, device=device, is_last=number == most - 1)


def _take(
    batch: DataProto, indices: list[int], *, padded: bool, shift: int, device: torch.device | str, is_last: bool
) -> MicroBatch:
    is_whole = indices == list(range(len(batch)))
    rows = batch if is_whole else batch.select_idxs(torch.tensor(indices, dtype=torch.int64))
    row_lengths = lengths(column(rows, "input_ids")).tolist()
    responses = lengths(column(rows, "responses")).tolist()
    ids = Jagged.of(column(rows, "input_ids")).values
    inputs = (pad if padded else pack)(ids.cpu(), row_lengths, responses, shift=shift)
    inputs = replace(inputs, images=images_of(rows))
    return MicroBatch(rows.to(device), indices, inputs.to(device), row_lengths, responses, is_last)


def check_rows(batch: DataProto) -> None:
    """Refuse a response without a token in front of it: nothing would predict its first token.

    Raises:
        DataError: names the first such row.
    """
    total, response = lengths(column(batch, "input_ids")), lengths(column(batch, "responses"))
    if bool((response >= total).any()):
        row = int((response >= total).nonzero()[0])
        msg = (
            f"row {row} has {int(total[row])} input_ids and {int(response[row])} responses; input_ids hold the prompt "
            "(at least one token) and then the response"
        )
        raise DataError(msg)


def column(batch: DataProto, name: str) -> Tensor:
    """A tensor column.

    Raises:
        DataError: the batch does not have it.
    """
    require_columns(batch, name)
    columns: Any = batch.batch
    values: Tensor = columns[name]
    return values


def require_columns(batch: DataProto, *names: str) -> None:
    """Refuse a batch without one of the columns ``names``.

    Raises:
        DataError: names what is missing and what is there.
    """
    present: tuple[Any, ...] = () if batch.batch is None else tuple(batch.batch.keys())
    missing = [name for name in names if name not in present]
    if missing:
        msg = f"the batch lacks the columns {missing}; it has {sorted(present)}. A training engine reads jagged {list(names)}"
        raise DataError(msg)


def rows_in_order(per_token: Sequence[tuple[MicroBatch, Tensor]], num_rows: int, dtype: torch.dtype) -> Tensor:
    """Outputs [N] of all passes as one jagged column on the CPU, in the order of the batch.

    Args:
        per_token: each pass and its outputs.
        num_rows: of the batch.
        dtype: of the column.
    """
    rows = [torch.empty(0, dtype=dtype)] * num_rows
    for micro, values in per_token:
        pieces = values.to("cpu", dtype).split(micro.response_lengths)
        for index, piece in zip(micro.indices, pieces, strict=True):
            rows[index] = piece
    values = torch.cat([torch.empty(0, dtype=dtype), *rows])
    offsets = torch.tensor([0, *(len(row) for row in rows)], dtype=torch.int64).cumsum(0)
    nested: Tensor = torch.nested.nested_tensor_from_jagged(values, offsets)
    return nested
