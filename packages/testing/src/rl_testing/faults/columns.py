"""Batches that break one promise each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from rl_dataproto import DataProto

from rl_testing.contracts.columns import tensors_of
from rl_testing.faults.fault import Fault

# A fault's class says what it does wrong; what its methods should do stands in the contract.
# ruff: noqa: D102


class MetaLeaked(DataProto):
    """Gives all parts of a chunk one dictionary of metadata."""

    def chunk(self, chunks: int, allow_uneven: bool = False) -> list[Self]:
        parts = super().chunk(chunks, allow_uneven)
        for part in parts:
            part.meta_info = self.meta_info
        return parts


class TorchChunks(DataProto):
    """Splits as ``torch.chunk`` does: parts of one size, the last one short, possibly fewer than asked."""

    def chunk(self, chunks: int, allow_uneven: bool = False) -> list[Self]:
        return self.split(-(-len(self) // chunks))


class UnevenChunksByTorch(DataProto):
    """Refuses uneven parts; when they are allowed, splits as ``torch.chunk`` does."""

    def chunk(self, chunks: int, allow_uneven: bool = False) -> list[Self]:
        return self.split(-(-len(self) // chunks)) if allow_uneven else super().chunk(chunks)


class EmptyPartsDropped(DataProto):
    """Returns no parts without rows."""

    def chunk(self, chunks: int, allow_uneven: bool = False) -> list[Self]:
        parts = super().chunk(chunks, allow_uneven)
        return [part if len(part) else part.select([], []) for part in parts]


class LastRowLost(DataProto):
    """Loses a row at the end of every part but the first."""

    def chunk(self, chunks: int, allow_uneven: bool = False) -> list[Self]:
        first, *rest = super().chunk(chunks, allow_uneven)
        return [first, *(part.slice(0, max(1, len(part) - 1)) for part in rest)]


class ChoosesInRowOrder(DataProto):
    """Returns chosen rows in the order of the batch."""

    def select_idxs(self, idxs: Any) -> Self:
        numbers = np.asarray(idxs)
        return super().select_idxs(idxs if numbers.dtype == bool else np.sort(numbers % len(self)))


class MaskAsNumbers(DataProto):
    """Takes a mask for row numbers."""

    def select_idxs(self, idxs: Any) -> Self:
        return super().select_idxs(np.asarray(idxs).astype(np.int64))


class StepIgnored(DataProto):
    """Knows start and stop alone."""

    def slice(self, start: int | None = None, end: int | None = None, step: int | None = None) -> Self:
        return super().slice(start, end)


class RowIsABatch(DataProto):
    """Returns a batch of one for a number."""

    def __getitem__(self, item: Any) -> Any:
        return super().__getitem__(item if not isinstance(item, int) else slice(item, item + 1))


class RepeatsTheOtherWay(DataProto):
    """Tiles when it should interleave."""

    def repeat(self, repeat_times: int = 2, interleave: bool = True) -> Self:
        return super().repeat(repeat_times, not interleave)


class ReordersTensorsOnly(DataProto):
    """Leaves non-tensor columns where they are."""

    def reorder(self, indices: Any) -> None:
        others = self.non_tensor_batch
        super().reorder(indices)
        self.non_tensor_batch = others


class ReordersMemory(DataProto):
    """Permutes in the memory that views share."""

    def reorder(self, indices: Any) -> None:
        old = {name: column for name, column in tensors_of(self).items() if not column.is_nested}
        super().reorder(indices)
        for name, column in old.items():
            column.copy_(tensors_of(self)[name])


class AnyOrderAccepted(DataProto):
    """Reorders by whatever it gets."""

    def reorder(self, indices: Any) -> None:
        chosen = self.select_idxs(indices)
        self.batch, self.non_tensor_batch = chosen.batch, chosen.non_tensor_batch


class HalfBecomesFloat(DataProto):
    """Sends bfloat16 as float32."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        columns = tensors_of(self)
        wide = {name: column.float() if column.dtype == torch.bfloat16 else column for name, column in columns.items()}
        widened = DataProto.from_dict(wide, self.non_tensor_batch, self.meta_info)
        return DataProto.__reduce_ex__(widened, protocol)


class FirstMetaWins(DataProto):
    """Takes the first part's metadata for all."""

    @staticmethod
    def concat(data: Sequence[Any]) -> Any:
        alike = [part.select() for part in data]
        for part in alike:
            part.meta_info = dict(data[0].meta_info)
        return DataProto.concat(alike)


class ClocksMustAgree(DataProto):
    """Compares timings as if they were settings."""

    @staticmethod
    def concat(data: Sequence[Any]) -> Any:
        if len({repr(part.meta_info.get("timing")) for part in data}) > 1:
            msg = "timing differs"
            raise ValueError(msg)
        return DataProto.concat(data)


class IndexErrorForNothing(DataProto):
    """Looks at the first of no batches."""

    @staticmethod
    def concat(data: Sequence[Any]) -> Any:
        return DataProto.concat([data[0], *data[1:]])


class NanIsAConflict(DataProto):
    """Compares cells with ``==``."""

    def union(self, other: Any) -> Self:
        for name in self.non_tensor_batch.keys() & other.non_tensor_batch.keys():
            mine, theirs = self.non_tensor_batch[name], other.non_tensor_batch[name]
            if isinstance(mine, np.ndarray) and len(mine) == len(theirs):
                for one, two in zip(mine, theirs, strict=True):
                    if isinstance(one, float) and one != two:
                        msg = f"{name} differs"
                        raise ValueError(msg)
        return super().union(other)


class FirstSideWins(DataProto):
    """Keeps its own column when the other side has one too."""

    def union(self, other: Any) -> Self:
        tensors = [name for name in tensors_of(other) if name not in tensors_of(self)]
        others = [name for name in other.non_tensor_batch if name not in self.non_tensor_batch]
        return super().union(other.select(tensors, others))


class ConcatWritesItsInput(DataProto):
    """Collects into the first batch."""

    @staticmethod
    def concat(data: Sequence[Any]) -> Any:
        joined = DataProto.concat(data)
        data[0].meta_info["num_parts"] = len(data)
        return joined


class ResolvesHandles(DataProto):
    """Turns row numbers of a handle into an array of values."""

    def chunk(self, chunks: int, allow_uneven: bool = False) -> list[Self]:
        parts = super().chunk(chunks, allow_uneven)
        for part in parts:
            part.non_tensor_batch["images"] = np.zeros(len(part))
        return parts


class UnknownNamesSkipped(DataProto):
    """Selects what is there of what was asked."""

    def select(
        self,
        batch_keys: Any = None,
        non_tensor_batch_keys: Any = None,
        meta_info_keys: Any = None,
        deepcopy: bool = False,
    ) -> Self:
        def known(keys: Any, names: Any) -> Any:
            return keys if keys is None else [key for key in keys if key in names]

        return super().select(
            known(batch_keys, tensors_of(self)),
            known(non_tensor_batch_keys, self.non_tensor_batch),
            known(meta_info_keys, self.meta_info),
            deepcopy,
        )


def _fault(name: str, promise: str, caught_by: str, batch: type[DataProto]) -> Fault:
    return Fault(name=name, promise=promise, caught_by=caught_by, overrides={"batch_class": batch})


FAULTS = (
    _fault("meta-leaked-between-chunks", "metadata is not shared", "test_metadata_is_not_shared", MetaLeaked),
    _fault("last-row-lost", "concat undoes chunk", "test_concat_undoes_chunk", LastRowLost),
    _fault("fewer-chunks-than-asked", "uneven chunks are refused", "test_uneven_chunks_are_refused", TorchChunks),
    _fault(
        "uneven-chunks-by-torch",
        "uneven chunks are near equal",
        "test_uneven_chunks_are_near_equal_when_allowed",
        UnevenChunksByTorch,
    ),
    _fault(
        "empty-parts-lose-columns",
        "parts without rows keep their columns",
        "test_more_parts_than_rows_leave_some_empty",
        EmptyPartsDropped,
    ),
    _fault(
        "rows-chosen-in-batch-order",
        "rows come in the asked order",
        "test_rows_are_chosen_by_number",
        ChoosesInRowOrder,
    ),
    _fault("mask-as-numbers", "a mask keeps rows", "test_rows_are_chosen_by_mask", MaskAsNumbers),
    _fault("step-ignored", "slices follow Python", "test_slices_follow_python", StepIgnored),
    _fault("row-is-a-batch", "a number gives a row", "test_one_row_by_number", RowIsABatch),
    _fault(
        "repeats-the-other-way",
        "interleave keeps copies together",
        "test_repeat_keeps_copies_together_or_tiles",
        RepeatsTheOtherWay,
    ),
    _fault(
        "reorders-tensors-only",
        "reorder permutes every column",
        "test_reorder_permutes_in_place",
        ReordersTensorsOnly,
    ),
    _fault("reorders-memory", "reorder writes no memory", "test_reorder_permutes_in_place", ReordersMemory),
    _fault(
        "any-order-accepted",
        "reorder takes permutations only",
        "test_what_is_no_permutation_is_refused",
        AnyOrderAccepted,
    ),
    _fault(
        "half-becomes-float",
        "a batch survives the trip",
        "test_a_batch_survives_the_trip_to_another_process",
        HalfBecomesFloat,
    ),
    _fault(
        "first-meta-wins",
        "conflicting metadata is not lost",
        "test_conflicting_metadata_is_not_lost",
        FirstMetaWins,
    ),
    _fault("clocks-must-agree", "timings may differ", "test_conflicting_metadata_is_not_lost", ClocksMustAgree),
    _fault(
        "index-error-for-nothing", "nothing cannot be joined", "test_nothing_cannot_be_joined", IndexErrorForNothing
    ),
    _fault("nan-is-a-conflict", "NaN equals itself", "test_union_adds_columns", NanIsAConflict),
    _fault("first-side-wins", "union refuses what differs", "test_union_refuses_what_differs", FirstSideWins),
    _fault(
        "concat-writes-its-input",
        "operations leave their input alone",
        "test_operations_leave_their_input_alone",
        ConcatWritesItsInput,
    ),
    _fault("handles-resolved", "handles are not resolved", "test_handles_are_not_resolved", ResolvesHandles),
    _fault(
        "unknown-names-skipped", "unknown names are errors", "test_select_keeps_what_was_asked", UnknownNamesSkipped
    ),
)
"""Faults of batches."""
