"""Mini-batches in the order a ``DataLoader`` gives them, without going through single rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch.utils.data import DataLoader

from rl_dataproto.errors import DataProtoTypeError, RowCountError, UnevenChunkError

if TYPE_CHECKING:
    from rl_dataproto.row_operations import RowOperations

    BatchT = TypeVar("BatchT", bound=RowOperations)

_OWN_ARGUMENTS = ("dataset", "batch_size", "collate_fn", "generator", "batch_sampler")


def mini_batches(
    data: BatchT,
    mini_batch_size: int,
    epochs: int,
    seed: int | None,
    dataloader_kwargs: dict[str, Any] | None,
) -> Iterator[BatchT]:
    """Check the arguments at once and return the iterator; see ``DataProto.make_iterator``."""
    kwargs = dict(dataloader_kwargs or {})
    for name in _OWN_ARGUMENTS:
        if name in kwargs:
            msg = f"dataloader_kwargs sets {name!r}: it follows from the batch, mini_batch_size and seed, leave it out."
            raise DataProtoTypeError(msg)
    if mini_batch_size < 1 or epochs < 0:
        msg = f"mini_batch_size={mini_batch_size} and epochs={epochs} were asked: use at least 1 and 0."
        raise RowCountError(msg)
    if len(data) % mini_batch_size and not kwargs.get("drop_last", False):
        msg = (
            f"{len(data)} rows were to be cut into mini-batches of {mini_batch_size}, {len(data) % mini_batch_size} are "
            f"left over: use a size that divides, or dataloader_kwargs={{'drop_last': True}}."
        )
        raise UnevenChunkError(msg)
    return _mini_batches(data, mini_batch_size, epochs, seed, kwargs)


def _mini_batches(data: BatchT, size: int, epochs: int, seed: int | None, kwargs: dict[str, Any]) -> Iterator[BatchT]:
    if not len(data):
        return
    generator = None
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
    elif not kwargs.get("shuffle", False) and kwargs.get("sampler") is None:
        # A DataLoader draws a number even when it does not shuffle; the global generator is not ours to advance.
        generator = torch.Generator()
    loader: DataLoader[int] = DataLoader(
        range(len(data)),  # type: ignore[arg-type]  # a range has the two methods of a dataset
        batch_size=size,
        collate_fn=list,
        generator=generator,
        **kwargs,
    )
    for _ in range(epochs):
        for numbers in loader:
            if numbers == list(range(numbers[0], numbers[0] + len(numbers))):
                yield data.slice(numbers[0], numbers[0] + len(numbers))
            else:
                yield data.select_idxs(numbers)
