"""The requests in flight on a replica, and which weights draw their tokens."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rl_core.errors import RlError, WeightSyncError

from rl_rollout_vllm.in_flight import InFlight

_log = logging.getLogger(__name__)


class Flights:
    """Requests by name."""

    def __init__(self) -> None:
        """None are in flight."""
        self._items: dict[str, InFlight] = {}
        self._given = 0
        self._tokens = 0
        self._has_warned = False

    def __iter__(self) -> Iterator[InFlight]:
        """Those in flight."""
        return iter(list(self._items.values()))

    def __bool__(self) -> bool:
        """Whether any is in flight."""
        return bool(self._items)

    def next_name(self, request_id: str) -> str:
        """A name for vLLM that it has never had."""
        self._given += 1
        return f"{request_id}#{self._given}"

    def named(self, request_ids: Sequence[str] | None) -> list[InFlight]:
        """Those of these ids, all for None; unknown ids are nobody's."""
        if request_ids is None:
            return list(self._items.values())
        return [self._items[name] for name in request_ids if name in self._items]

    @contextmanager
    def holding(self, item: InFlight) -> Iterator[None]:
        """``item`` is in flight inside.

        Raises:
            RlError: a request of its id is.
        """
        name = item.request.request_id
        if name in self._items:
            msg = f"request {name!r} is in flight already; request ids must differ"
            raise RlError(msg)
        self._items[name] = item
        self._tokens += item.final_length
        try:
            yield
        finally:
            item.is_ended = True
            self._tokens -= item.final_length
            if self._items.get(name) is item:
                del self._items[name]

    def release(self, item: InFlight) -> None:
        """Let another request have its id, while its own answer is on the way."""
        name = item.request.request_id
        if self._items.get(name) is item:
            del self._items[name]

    def warn_if_crowded(self, *, cache_tokens: int, max_num_seqs: int) -> None:
        """Say once that the cache cannot hold what is in flight: sequences then wait, or start again."""
        count = len(self._items)
        if self._has_warned or not cache_tokens or not count:
            return
        longest = self._tokens / count
        at_once = min(count, max_num_seqs)
        if at_once * longest <= cache_tokens:
            return
        self._has_warned = True
        _log.warning(
            "generation crawls: %d requests of up to %.0f tokens are in flight, but the cache of rollout 'vllm' holds %d "
            "tokens, %.0f such sequences at a time. Raise rollout.gpu_memory_utilization (on a CPU: rollout.vllm.cache_gib), "
            "lower data.max_response_length, or spread the weights over more devices (rollout.tensor_model_parallel_size)",
            count,
            longest,
            cache_tokens,
            cache_tokens / longest,
        )

    def refuse_stale(self, version: int, progress: dict[str, int]) -> list[InFlight]:
        """Those that have drawn nothing yet and need another version than the new one; each has its error."""
        stale = []
        for item in self:
            required = item.request.required_version
            if required not in (None, version) and not progress.get(item.name):
                item.error = stale_error(item.request.request_id, required, version)
                stale.append(item)
        return stale


def stale_error(request_id: str, required: int | None, loaded: int | None) -> WeightSyncError:
    """For a request that weights of another version would answer."""
    return WeightSyncError(f"request {request_id!r} needs weights of version {required}; loaded is {loaded}")
