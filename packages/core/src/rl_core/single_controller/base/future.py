"""Results that are not there yet. Every one can be an argument of another worker method, which waits for it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any


class WorkerFuture(ABC):
    """One result that is still being computed."""

    @abstractmethod
    def result(self, timeout: float | None = None) -> Any:
        """Wait for it.

        Args:
            timeout: seconds; None waits for the deadline of the group that computes.

        Raises:
            DeadlineError: it did not come in time.
            WorkerError: the worker failed.
        """

    @abstractmethod
    def done(self) -> bool:
        """Whether ``result`` returns (or raises) at once."""


class CollectedFuture(WorkerFuture):
    """The outputs of several workers as one result, collected by whoever asks first."""

    def __init__(self, collect: Callable[[list[Any]], Any], futures: Sequence[WorkerFuture]) -> None:
        """Nothing is waited for yet.

        Args:
            collect: makes the result from all outputs, in the order of ``futures``.
            futures: one for each worker that was called.
        """
        self._collect = collect
        self._futures = list(futures)

    def result(self, timeout: float | None = None) -> Any:
        """Wait for all outputs, ``timeout`` seconds altogether, and collect them."""
        return self._collect(wait_all(self._futures, timeout))

    def done(self) -> bool:
        """Whether every output is there."""
        return all(future.done() for future in self._futures)


def wait_all(futures: Sequence[WorkerFuture], timeout: float | None = None) -> list[Any]:
    """The results of ``futures`` in order, waiting ``timeout`` seconds altogether."""
    if timeout is None:
        return [future.result() for future in futures]
    end = time.monotonic() + timeout
    return [future.result(max(end - time.monotonic(), 0.0)) for future in futures]
