"""The reward managers of core: rows become calls of a pool, and its answers the rewards of the rows.

Other managers are subclasses. ``adjusted`` changes results by what stands in the batch (a penalty for length), ``pool`` the way
functions run (a limit on their rate).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from rl_core.contracts.reward import RewardFailure, RewardManager, RewardResult, missing_reward
from rl_core.scoring.call import Call, read_call
from rl_core.scoring.pool import ScorePool
from rl_core.scoring.rows import Rows

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.config import PPOTrainerConfig
    from rl_core.scoring.process import Job

MAX_CONCURRENT: Final = 64
"""Coroutines that run at once where ``reward_model.max_concurrent`` does not say."""
MAX_KEPT: Final = 1 << 17
"""Rows that were submitted and never collected are forgotten beyond this number, the oldest first."""

_Key = tuple[Any, ...]
_Score = tuple["Job", int]


class PooledRewardManager(RewardManager):
    """Scores rows in killable processes, from ``submit`` on."""

    def __init__(self, reward_function: Callable[..., Any], tokenizer: Any, config: PPOTrainerConfig) -> None:
        """Look at the function; no process is started before the first row.

        Args:
            reward_function: see ``rl_core.contracts.reward``; one with ``for_source`` is asked for a function a data source.
            tokenizer: decodes responses.
            config: the run's configuration.

        Raises:
            ConfigError: the function needs an argument that nobody has, or cannot be sent to a process.
        """
        self._function = reward_function
        self._tokenizer = tokenizer
        self._config = config
        self._max_late_fraction = config.trainer.max_failed_reward_fraction
        self._pool = self.pool(config)
        self._calls: dict[str | None, tuple[int, Call]] = {}
        self._scores: OrderedDict[_Key, deque[_Score]] = OrderedDict()
        self._num_kept = 0
        if not hasattr(reward_function, "for_source"):
            self._call_of(None)

    def pool(self, config: PPOTrainerConfig) -> ScorePool:
        """The pool that calls functions."""
        settings = config.reward_model
        return ScorePool(
            num_workers=settings.num_workers,
            timeout_s=settings.timeout,
            memory_mb=settings.memory_limit_mb,
            max_concurrent=settings.max_concurrent or MAX_CONCURRENT,
        )

    def adjusted(self, batch: DataProto, results: list[RewardResult]) -> list[RewardResult]:
        """The results as they go to the loop; a subclass may change them by what stands in the batch."""
        return results

    def batch_rows(self) -> int | None:
        """Rows of one call of a function that takes many; None: all that are submitted at once."""
        return None

    def submit(self, rows: DataProto) -> None:
        """See ``RewardManager``."""
        table = Rows(rows, self._tokenizer)
        keys = {row: table.key(row) for row in range(len(table))}
        # A response with a name of its own may be submitted as soon as it is there, and once more with its batch.
        new = [row for row, key in keys.items() if not (table.is_named and key in self._scores)]
        self._keep([keys[row] for row in new], self._start(table, new))

    def collect(self, batch: DataProto) -> list[RewardResult]:
        """See ``RewardManager``. Each call has its deadline, so this ends."""
        table = Rows(batch, self._tokenizer)
        scores = [self._take(table.key(row)) for row in range(len(table))]
        absent = [row for row, score in enumerate(scores) if score is None]
        for row, score in zip(absent, self._start(table, absent), strict=True):
            scores[row] = score
        return self.adjusted(batch, self._wait([score for score in scores if score is not None]))

    def close(self) -> None:
        """End all processes."""
        self._pool.close()

    def _wait(self, scores: Sequence[_Score]) -> list[RewardResult]:
        results: list[RewardResult] = []
        num_late = 0
        for place, (job, row) in enumerate(scores):
            result = _skipped(num_late) if job.future.cancelled() else job.future.result()[row]
            results.append(result)
            is_late = result.failure is RewardFailure.TIMEOUT
            num_late += is_late
            if is_late and num_late > self._max_late_fraction * len(scores):
                # The step is lost already; waiting for every further row could take days.
                for other, _ in scores[place + 1 :]:
                    other.future.cancel()
        return results

    def _start(self, table: Rows, rows: Sequence[int]) -> list[_Score]:
        """Calls for these rows, in their order."""
        together: dict[int, list[int]] = {}
        calls: dict[int, Call] = {}
        asked: list[tuple[int, dict[str, Any], int]] = []
        places: dict[int, tuple[int, int]] = {}
        for row in rows:
            key, call = self._call_of(table.read("data_source", row))
            if call.is_batched:
                calls[key] = call
                together.setdefault(key, []).append(row)
            else:
                places[row] = (len(asked), 0)
                asked.append((key, table.arguments(row, call.names), 0))
        for key, many in together.items():
            size = self.batch_rows() or len(many)
            for start in range(0, len(many), size):
                part = many[start : start + size]
                places |= {row: (len(asked), place) for place, row in enumerate(part)}
                asked.append((key, table.lists(part, calls[key].names), len(part)))
        jobs = self._pool.submit(asked)
        return [(jobs[number], place) for number, place in map(places.__getitem__, rows)]

    def _call_of(self, data_source: str | None) -> tuple[int, Call]:
        """Key of the function in the pool, and how it is called."""
        choose = getattr(self._function, "for_source", None)
        name = data_source if choose is not None else None
        if name not in self._calls:
            function = self._function if choose is None else choose(name)
            plain = function.plain() if hasattr(function, "plain") else function
            what = f"reward function {getattr(plain, '__name__', plain)!r}"
            call = read_call(plain, getattr(function, "reward_kwargs", {}), what)
            self._calls[name] = (self._pool.add_function(function), call)
        return self._calls[name]

    def _keep(self, keys: Sequence[_Key], scores: Sequence[_Score]) -> None:
        for key, score in zip(keys, scores, strict=True):
            self._scores.setdefault(key, deque()).append(score)
        self._num_kept += len(keys)
        while self._num_kept > MAX_KEPT:
            self._num_kept -= len(self._scores.popitem(last=False)[1])

    def _take(self, key: _Key) -> _Score | None:
        waiting = self._scores.get(key)
        if waiting is None:
            return None
        score = waiting.popleft()
        self._num_kept -= 1
        if not waiting:
            del self._scores[key]
        return score


class NaiveRewardManager(PooledRewardManager):
    """The reward function of the configuration, or of each row's data source, in the pool."""


def _skipped(num_late: int) -> RewardResult:
    return missing_reward(RewardFailure.SKIPPED, f"not scored: {num_late} rewards before it were too late")
