"""Who runs: sequences are admitted in order of arrival as others end, and start again when the cache is too small.

Pure bookkeeping. A plan is made between two steps, and says what the device has to do in the next one::

    leave     sequences that are done leave their rows; the last rows move into the gaps
    yield     while the cache cannot hold the others a while longer, the one admitted last goes back to the queue
    admit     waiting sequences take the next rows; their tokens but the last are read in one pass
    step      one token is drawn for every row
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice

from rl_rollout_hf.cache import BLOCK, Need
from rl_rollout_hf.in_flight import InFlight

Refuse = Callable[[InFlight], Exception | None]
"""Why a sequence cannot be served now, or None."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much runs at a time.

    Attributes:
        max_num_seqs: rows.
        max_num_batched_tokens: tokens of one step, prompts and rows together; one prompt a step may be longer.
        budget_tokens: rows times columns of the cache.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    budget_tokens: int


@dataclass(frozen=True, slots=True)
class Plan:
    """One step of the device.

    Attributes:
        rows: what runs, in order of rows, newly admitted ones last.
        moves: ``(from, to)`` rows to copy first.
        kept: rows that are in the cache already, after the moves.
        kept_length: columns that the longest of them fills before this step.
        contexts: of the newly admitted: the tokens to read.
        need: room in the cache.
        version: of the weights.
    """

    rows: tuple[InFlight, ...]
    moves: tuple[tuple[int, int], ...]
    kept: int
    kept_length: int
    contexts: tuple[tuple[int, ...], ...]
    need: Need
    version: int


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a step drew, one entry a row.

    Attributes:
        tokens: ids.
        log_probs: of the tokens.
        is_sound: False where the model gave logits that are not numbers.
    """

    tokens: list[int]
    log_probs: list[float]
    is_sound: list[bool]


class Scheduler:
    """The waiting and the running."""

    def __init__(self, limits: Limits) -> None:
        """Nothing is there."""
        self.limits = limits
        self.waiting: deque[InFlight] = deque()
        self.running: list[InFlight] = []
        self._admissions = 0

    def plan(self, version: int, refuse: Refuse) -> Plan | None:
        """The next step; None when nothing can run.

        Args:
            version: of the weights that the step uses.
            refuse: asked before a sequence is admitted; with a reason it gets that as its answer.
        """
        staying = [item for item in self.running if not item.is_done]
        extent = self._yield(staying)
        moves = self._close_gaps(staying)
        kept, kept_length = len(self.running), max(extent.longest - 1, 0)
        contexts, extent = self._admit(extent, refuse)
        if not self.running:
            return None
        return Plan(
            rows=tuple(self.running),
            moves=tuple(moves),
            kept=kept,
            kept_length=kept_length,
            contexts=tuple(contexts),
            need=Need(
                rows=len(self.running),
                length=extent.longest,
                likely_rows=min(self.limits.max_num_seqs, len(self.running) + len(self.waiting)),
                likely_length=max(extent.final, self._next_final()),
            ),
            version=version,
        )

    def requeue(self) -> None:
        """Take every row back: what the cache holds is not valid any more. Tokens drawn so far stay."""
        self._put_back(self.running)
        self.running = []

    def _put_back(self, items: Iterable[InFlight]) -> None:
        for item in sorted(items, key=lambda item: item.admission, reverse=True):
            if not item.is_done:
                self.waiting.appendleft(item)

    def _yield(self, staying: list[InFlight]) -> _Extent:
        extent = _Extent.of(staying)
        leaving = []
        while len(staying) > 1 and not self._fits(len(staying), extent):
            latest = max(staying, key=lambda item: item.admission)
            staying.remove(latest)
            leaving.append(latest)
            extent = _Extent.of(staying)
        self._put_back(leaving)
        return extent

    def _close_gaps(self, staying: list[InFlight]) -> list[tuple[int, int]]:
        if len(staying) == len(self.running):
            return []
        places = {id(item) for item in staying}
        gaps = [row for row in range(len(staying)) if id(self.running[row]) not in places]
        late = [row for row in range(len(staying), len(self.running)) if id(self.running[row]) in places]
        moves = list(zip(late, gaps, strict=True))
        for source, target in moves:
            self.running[target] = self.running[source]
        del self.running[len(staying) :]
        return moves

    def _admit(self, extent: _Extent, refuse: Refuse) -> tuple[list[tuple[int, ...]], _Extent]:
        contexts: list[tuple[int, ...]] = []
        read: set[tuple[int, ...]] = set()
        num_tokens = len(self.running)
        while self.waiting and len(self.running) < self.limits.max_num_seqs:
            item = self.waiting[0]
            error = None if item.is_done else refuse(item)
            if item.is_done or error is not None:
                self.waiting.popleft()
                if error is not None:
                    item.fail(error)
                continue
            context = item.context()
            wider = extent.with_(item)
            num_tokens += 1 + (0 if context in read else len(context))
            # A prompt that is longer than the limit would wait for ever; it goes when no other one does.
            if contexts and num_tokens > self.limits.max_num_batched_tokens:
                break
            if self.running and not self._fits(len(self.running) + 1, wider):
                break
            self.waiting.popleft()
            item.admission = self._admissions
            self._admissions += 1
            self.running.append(item)
            contexts.append(context)
            read.add(context)
            extent = wider
        return contexts, extent

    def _next_final(self) -> int:
        """The longest that those who wait for the next rows may come to be."""
        return max((item.final_length for item in islice(self.waiting, self.limits.max_num_seqs)), default=0)

    def _fits(self, rows: int, extent: _Extent) -> bool:
        """Whether the cache can hold so many rows for some steps to come."""
        return rows * min(extent.longest + BLOCK, extent.final) <= self.limits.budget_tokens


@dataclass(frozen=True, slots=True)
class _Extent:
    """Of several sequences: the longest now, and the longest that one of them may come to be."""

    longest: int
    final: int

    @classmethod
    def of(cls, items: Iterable[InFlight]) -> _Extent:
        extents = [(item.length, item.final_length) for item in items]
        return cls(max((now for now, _ in extents), default=0), max((last for _, last in extents), default=0))

    def with_(self, item: InFlight) -> _Extent:
        return _Extent(max(self.longest, item.length), max(self.final, item.final_length))
