"""The suite for reward functions.

::

    class TestMyReward(RewardContract):
        compute_score = staticmethod(compute_score)
        cases = (RewardCase("#### 4", "4", 1.0), RewardCase("#### 5", "4", 0.0))
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import pickle
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from rl_core.contracts.reward import RewardResult, parse_reward

from rl_testing.contracts.suite import ContractSuite


@dataclass(frozen=True, slots=True)
class RewardCase:
    """A response and the score that it deserves."""

    solution_str: str
    ground_truth: Any
    score: float
    data_source: str = "test"
    extra_info: Mapping[str, Any] | None = None

    def arguments(self) -> dict[str, Any]:
        """Copies of what the function is called with."""
        return {
            "data_source": self.data_source,
            "solution_str": self.solution_str,
            "ground_truth": copy.deepcopy(self.ground_truth),
            "extra_info": copy.deepcopy(self.extra_info),
        }


_STRANGE_RESPONSES = {
    "empty": "",
    "blank": " \n\t ",
    "long": "1 " * 50_000,
    "nested": "(" * 20_000 + ")" * 20_000,
    "unfinished": "\\boxed{\\frac{" * 5_000,
    "unicode": "\U0001f642 \u00e9\u0301 \u202e 42 \x00",
}


class RewardContract(ContractSuite):
    """Override ``compute_score`` and ``cases``."""

    compute_score: Callable[..., Any]
    """The function, as ``staticmethod``."""

    cases: tuple[RewardCase, ...] = ()
    """Responses with known scores, at least two of them different."""

    seconds_a_response = 2.0
    """How long any response may take."""

    def score(self, arguments: Mapping[str, Any]) -> RewardResult:
        """Call the function as a manager does."""
        return _score(self.compute_score, arguments)

    def test_cases_have_their_scores(self) -> None:
        """Every case gets its score, and there are cases that differ.

        If this fails: the function judges wrongly, raises, or returns a dict without ``score``, None or NaN.
        """
        assert len({case.score for case in self.cases}) >= 2, "give at least two cases with different scores"
        for case in self.cases:
            result = self.score(case.arguments())
            assert result.error is None, f"{case}: {result.error}"
            assert result.score == pytest.approx(case.score, abs=1e-6), case

    def test_extra_info_may_be_absent(self) -> None:
        """Called by keyword without ``extra_info`` the function has a default.

        If this fails: ``extra_info`` lacks a default, or None is taken for a dict.
        """
        for case in self.cases:
            if case.extra_info is None:
                arguments = case.arguments()
                del arguments["extra_info"]
                assert self.score(arguments).score == pytest.approx(case.score, abs=1e-6)

    def test_the_same_response_has_the_same_score(self) -> None:
        """Scoring again, after other responses, changes nothing.

        If this fails: the function keeps state between calls, or draws random numbers.
        """
        first = [self.score(case.arguments()) for case in self.cases]
        again = [self.score(case.arguments()) for case in reversed(self.cases)]
        assert first == again[::-1]

    def test_arguments_stay_as_they_are(self) -> None:
        """What the function is given belongs to the batch.

        If this fails: ``extra_info`` or ``ground_truth`` is written to; what was written shows up in the next step.
        """
        for case in self.cases:
            arguments = case.arguments()
            self.score(arguments)
            assert arguments == case.arguments()

    @pytest.mark.parametrize("response", sorted(_STRANGE_RESPONSES))
    def test_any_response_gets_a_score(self, response: str) -> None:
        """Whatever a model writes is judged, and in bounded time.

        If this fails: the function raises on odd text (the reward is then missing, and enough of them stop the run), or a
        regular expression takes for ever on it. Bad answers deserve a low score.
        """
        arguments = self.cases[0].arguments() | {"solution_str": _STRANGE_RESPONSES[response]}
        with ThreadPoolExecutor(1) as pool:
            result = pool.submit(self.score, arguments).result(self.seconds_a_response)
        assert result.error is None
        assert result.score is not None

    def test_any_thread_gets_the_score(self) -> None:
        """Scores do not depend on which thread asks, nor on an event loop that runs there.

        If this fails: the function uses signals (main thread only) or ``asyncio.run`` of its own; managers call it from
        worker threads and coroutines.
        """
        expected = [case.score for case in self.cases]
        with ThreadPoolExecutor(2) as pool:
            in_threads = list(pool.map(lambda case: self.score(case.arguments()).score, self.cases))
        assert in_threads == pytest.approx(expected, abs=1e-6)

        async def inside_a_loop() -> list[float | None]:
            values = [self.compute_score(**case.arguments()) for case in self.cases]
            done = [await value if inspect.isawaitable(value) else value for value in values]
            return [parse_reward(value).score for value in done]

        assert asyncio.run(inside_a_loop()) == pytest.approx(expected, abs=1e-6)

    def test_it_can_be_sent_to_a_process(self) -> None:
        """The function pickles: managers run it in processes of their own.

        If this fails: it is a lambda, a closure, or bound to something that cannot travel. Put it in a module.
        """
        copied = pickle.loads(pickle.dumps(self.compute_score))
        for case in self.cases:
            assert _score(copied, case.arguments()).score == pytest.approx(case.score, abs=1e-6)

    def test_what_it_reports_can_be_logged(self) -> None:
        """Entries beside ``score`` are plain values under text keys.

        If this fails: a result carries arrays, tensors or objects, which cannot be written to the log of samples.
        """
        for case in self.cases:
            extra = self.score(case.arguments()).extra
            assert json.loads(json.dumps(dict(extra), allow_nan=False)) == dict(extra)


def _score(function: Callable[..., Any], arguments: Mapping[str, Any]) -> RewardResult:
    value = function(**arguments)
    return parse_reward(asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value)


async def _awaited(value: Any) -> Any:
    return await value
