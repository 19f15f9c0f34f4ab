"""How many calls may start: so many at once, in any minute, and with so many tokens in any minute."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rl_core.contracts.reward import RewardResult

MINUTE_S = 60.0
TOKENS_KEY = "total_tokens"
"""Entry of a reward's dict that says what the call has cost."""
_LOOK_AGAIN_S = 1.0


class RateLimit:
    """A sliding minute: at no time do more calls lie in the last 60 s than allowed. A ``Gate`` of the pool."""

    def __init__(self, max_concurrent: int | None, max_rpm: int | None, max_tpm: int | None, tokens_each: int) -> None:
        """Store the limits, None for none.

        Args:
            max_concurrent: calls at once.
            max_rpm: calls in a minute.
            max_tpm: tokens in a minute. A call alone may take more, or it could never start.
            tokens_each: what a call counts until its answer says ``total_tokens``.
        """
        self._max_concurrent = math.inf if max_concurrent is None else max_concurrent
        self._max_rpm = math.inf if max_rpm is None else max_rpm
        self._max_tpm = math.inf if max_tpm is None else max_tpm
        self._tokens_each = tokens_each
        self._starts: deque[float] = deque()
        self._spent: deque[tuple[float, int]] = deque()
        self._num_tokens = 0
        self._num_running = 0

    def wait_s(self, now: float) -> float:
        """See ``Gate``."""
        self._forget(now)
        if self._num_running >= self._max_concurrent:
            return _LOOK_AGAIN_S  # an answer ends the wait at once
        waits = [0.0]
        if len(self._starts) >= self._max_rpm:
            waits.append(self._starts[0] + MINUTE_S - now)
        tokens, index = self._num_tokens, 0
        while index < len(self._spent) and tokens > 0 and tokens + self._tokens_each > self._max_tpm:
            tokens -= self._spent[index][1]
            waits.append(self._spent[index][0] + MINUTE_S - now)
            index += 1
        return max(waits)

    def started(self, now: float) -> None:
        """See ``Gate``."""
        self._num_running += 1
        self._starts.append(now)
        self._add(now, self._tokens_each)

    def ended(self, results: Sequence[RewardResult], now: float) -> None:
        """See ``Gate``."""
        self._num_running -= 1
        for result in results:
            tokens = result.extra.get(TOKENS_KEY)
            if isinstance(tokens, int):
                self._add(now, tokens - self._tokens_each)

    def _add(self, now: float, tokens: int) -> None:
        self._spent.append((now, tokens))
        self._num_tokens += tokens

    def _forget(self, now: float) -> None:
        while self._starts and self._starts[0] <= now - MINUTE_S:
            self._starts.popleft()
        while self._spent and self._spent[0][0] <= now - MINUTE_S:
            self._num_tokens -= self._spent.popleft()[1]
