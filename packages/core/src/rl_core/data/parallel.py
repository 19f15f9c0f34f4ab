"""Rows of big files, rendered by several processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Final, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

SMALLEST: Final = 2_000
"""Below this many items a process costs more than it saves: each imports the tokenizer's library first."""

_CHUNK: Final = 500
_worker: Callable[[Any], Any] | None = None


def map_rows(call: Callable[[Item], Result], items: Sequence[Item], num_processes: int) -> Iterator[Result]:
    """``call`` of each item, in their order.

    Args:
        call: can be pickled; an exception of its is raised here, at the item's turn.
        items: can be pickled.
        num_processes: 1 stays in this process, as do fewer than ``SMALLEST`` items.
    """
    if num_processes < 2 or len(items) < SMALLEST:
        yield from map(call, items)
        return
    # Spawned, not forked: this process has threads of torch and of the tokenizer.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_processes, mp_context=context, initializer=_start, initargs=(call,)) as pool:
        try:
            for results in pool.map(_several, _chunks(items)):
                yield from results
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _chunks(items: Sequence[Item]) -> Iterable[Sequence[Item]]:
    return (items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK))


def _start(call: Callable[[Any], Any]) -> None:
    global _worker
    _worker = call


def _several(items: Sequence[Any]) -> list[Any]:
    if _worker is None:
        msg = "a process that renders rows was not started by map_rows"
        raise RuntimeError(msg)
    return [_worker(item) for item in items]
