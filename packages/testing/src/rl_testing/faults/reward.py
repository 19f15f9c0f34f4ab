"""Reward functions and managers that break one promise each."""

from __future__ import annotations

import asyncio
import functools
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from rl_core.contracts.reward import RewardResult
from rl_dataproto import DataProto

from rl_testing.fakes.reward import count_letter, exact_match
from rl_testing.fakes.reward_manager import ThreadedRewardManager
from rl_testing.faults.fault import Fault

# A fault's class says what it does wrong; what its methods should do stands in the contract.
# ruff: noqa: D102, D103


def never_right(**arguments: Any) -> float:
    return count_letter(**arguments) / 2


def wants_extra_info(*, extra_info: Any, **arguments: Any) -> float:
    return count_letter(**arguments)


def noisy(**arguments: Any) -> float:
    return count_letter(**arguments) + random.random() * 1e-7


def writes_extra_info(*, extra_info: Any = None, **arguments: Any) -> float:
    if extra_info is not None:
        extra_info["length"] = len(arguments["solution_str"])
    return count_letter(**arguments)


def divides_by_length(**arguments: Any) -> float:
    text = arguments["solution_str"]
    return text.count(str(arguments["ground_truth"] or "a")) / len(text)


def main_thread_only(**arguments: Any) -> float:
    if threading.current_thread() is not threading.main_thread():
        msg = "signal only works in main thread of the main interpreter"
        raise ValueError(msg)
    return count_letter(**arguments)


def runs_a_loop(**arguments: Any) -> float:
    async def judge() -> float:
        return count_letter(**arguments)

    coroutine = judge()
    try:
        return asyncio.run(coroutine)
    finally:
        coroutine.close()


def logs_arrays(**arguments: Any) -> dict[str, Any]:
    return exact_match(**arguments) | {"characters": np.array([1, 2])}


class AnyOrder(ThreadedRewardManager):
    """Returns results sorted by score, as if they had come in that order."""

    def collect(self, batch: DataProto) -> list[RewardResult]:
        return sorted(super().collect(batch), key=lambda result: -(result.score or 0.0))


class FailureIsZero(ThreadedRewardManager):
    """Scores what failed 0."""

    def collect(self, batch: DataProto) -> list[RewardResult]:
        return [RewardResult(result.score or 0.0, result.extra) for result in super().collect(batch)]


class FailureIsDropped(ThreadedRewardManager):
    """Leaves out rows that failed."""

    def collect(self, batch: DataProto) -> list[RewardResult]:
        return [result for result in super().collect(batch) if result.score is not None]


class SilentFailure(ThreadedRewardManager):
    """Knows that a reward is missing, and not why."""

    def collect(self, batch: DataProto) -> list[RewardResult]:
        return [
            replace(result, error="failed" if result.error is not None else None) for result in super().collect(batch)
        ]


class ExtraDropped(ThreadedRewardManager):
    """Keeps the score of a dict alone."""

    def collect(self, batch: DataProto) -> list[RewardResult]:
        return [replace(result, extra={}) for result in super().collect(batch)]


class CoroutineNotAwaited(ThreadedRewardManager):
    """Takes what the function returns, whatever it is."""

    def __init__(self, reward_function: Any, tokenizer: Any, config: Any) -> None:
        def call(**arguments: Any) -> Any:
            value = reward_function(**arguments)
            if asyncio.iscoroutine(value):
                value.close()
                return str(value)
            return value

        super().__init__(call, tokenizer, config)


class SpecialTokensKept(ThreadedRewardManager):
    """Leaves the end of sequence in the text."""

    def __init__(self, reward_function: Any, tokenizer: Any, config: Any) -> None:
        super().__init__(reward_function, _NoSkipping(tokenizer), config)


class _NoSkipping:
    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
        return str(self.tokenizer.decode(ids))


class TruthOfTheFirst(ThreadedRewardManager):
    """Holds every response against the first row's truth."""

    def collect(self, batch: DataProto) -> list[RewardResult]:
        first = batch.select_idxs([0] * len(batch))
        mixed = DataProto(
            batch.batch, {**batch.non_tensor_batch, "reward_model": first.non_tensor_batch["reward_model"]}
        )
        return super().collect(mixed)


class ScoresTwice(ThreadedRewardManager):
    """Forgets what was submitted."""

    def submit(self, rows: DataProto) -> None:
        super().submit(rows)
        self._started.clear()


class OrderOfSubmission(ThreadedRewardManager):
    """Returns what was submitted first, first."""

    early: tuple[RewardResult, ...] = ()

    def submit(self, rows: DataProto) -> None:
        self.early += tuple(super().collect(rows))

    def collect(self, batch: DataProto) -> list[RewardResult]:
        return [*self.early, *super().collect(batch)][: len(batch)]


class WritesTheBatch(ThreadedRewardManager):
    """Notes the text in the batch that it was given."""

    def collect(self, batch: DataProto) -> list[RewardResult]:
        results = super().collect(batch)
        batch.non_tensor_batch["text"] = np.array(["" for _ in results], dtype=object)
        return results


class NeedsExtraInfo(ThreadedRewardManager):
    """Reads a column that data need not have."""

    def collect(self, batch: DataProto) -> list[RewardResult]:
        if len(batch) and "extra_info" not in batch.non_tensor_batch:
            raise KeyError("extra_info")  # noqa: EM101 - what indexing raises
        return super().collect(batch)


class NeedsRows(ThreadedRewardManager):
    """Cannot do without rows."""

    def collect(self, batch: DataProto) -> list[RewardResult]:
        results = super().collect(batch)
        return [replace(results[0]), *results[1:]]


class WaitsForEver(ThreadedRewardManager):
    """Has no deadline to speak of."""

    def __init__(self, reward_function: Any, tokenizer: Any, config: Any) -> None:
        super().__init__(reward_function, tokenizer, config)
        self._timeout_s = 1.5


def _function(name: str, promise: str, caught_by: str, function: Callable[..., Any]) -> Fault:
    return Fault(name=name, promise=promise, caught_by=caught_by, overrides={"compute_score": staticmethod(function)})


def _manager(name: str, promise: str, caught_by: str, manager: type[ThreadedRewardManager]) -> Fault:
    return Fault(name=name, promise=promise, caught_by=caught_by, overrides={"manager_class": manager})


FUNCTION_FAULTS = (
    _function("judges-wrongly", "cases have their scores", "test_cases_have_their_scores", never_right),
    _function("wants-extra-info", "extra_info may be absent", "test_extra_info_may_be_absent", wants_extra_info),
    _function(
        "random-score",
        "the same response has the same score",
        "test_the_same_response_has_the_same_score",
        noisy,
    ),
    _function(
        "writes-its-arguments", "arguments stay as they are", "test_arguments_stay_as_they_are", writes_extra_info
    ),
    _function("raises-on-empty-text", "any response gets a score", "test_any_response_gets_a_score", divides_by_length),
    _function("main-thread-only", "any thread gets the score", "test_any_thread_gets_the_score", main_thread_only),
    _function("own-event-loop", "a running loop does not disturb", "test_any_thread_gets_the_score", runs_a_loop),
    _function(
        "cannot-be-pickled",
        "the function can be sent to a process",
        "test_it_can_be_sent_to_a_process",
        functools.wraps(count_letter)(lambda **arguments: count_letter(**arguments)),
    ),
    _function("logs-arrays", "what is reported can be logged", "test_what_it_reports_can_be_logged", logs_arrays),
)
"""Faults of reward functions."""

MANAGER_FAULTS = (
    _manager("any-order", "results are in row order", "test_results_are_in_the_order_of_the_rows", AnyOrder),
    _manager("failure-is-zero", "a missing reward is never 0", "test_a_missing_reward_is_never_zero", FailureIsZero),
    _manager("failure-is-dropped", "every row has a result", "test_a_missing_reward_is_never_zero", FailureIsDropped),
    _manager("silent-failure", "an error says what happened", "test_an_error_says_what_happened", SilentFailure),
    _manager(
        "extra-dropped", "a dict brings more than its score", "test_a_dict_brings_more_than_its_score", ExtraDropped
    ),
    _manager(
        "coroutine-not-awaited", "functions of both kinds work", "test_functions_of_both_kinds", CoroutineNotAwaited
    ),
    _manager(
        "special-tokens-kept", "a function sees plain text", "test_a_function_sees_its_own_row", SpecialTokensKept
    ),
    _manager(
        "truth-of-the-first-row", "a function sees its own row", "test_a_function_sees_its_own_row", TruthOfTheFirst
    ),
    _manager("scores-twice", "every row is scored once", "test_every_row_is_scored_once", ScoresTwice),
    _manager("order-of-submission", "results are in row order", "test_scoring_may_start_early", OrderOfSubmission),
    _manager("writes-the-batch", "the batch stays as it is", "test_the_batch_stays_as_it_is", WritesTheBatch),
    _manager("needs-extra-info", "extra_info may be absent", "test_extra_info_may_be_absent", NeedsExtraInfo),
    _manager("needs-rows", "an empty batch is legal", "test_no_rows_have_no_results", NeedsRows),
    Fault(
        name="waits-for-ever",
        promise="what hangs is missing",
        caught_by="test_what_hangs_is_missing",
        overrides={"manager_class": WaitsForEver, "seconds_late": 0.5},
    ),
)
"""Faults of reward managers."""
