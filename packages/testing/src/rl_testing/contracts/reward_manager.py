"""The suite for reward managers.

::

    class TestMyManager(RewardManagerContract):
        manager_class = MyManager

A manager may call functions in other processes: those of the suite can be sent there with cloudpickle, and tell what they saw
by what they return, or in a file.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rl_core.contracts.reward import RewardManager, RewardResult
from rl_dataproto import DataProto, jagged_from_rows

from rl_testing.contracts.suite import ContractSuite
from rl_testing.fakes.tokenizer import EOS_ID, TinyTokenizer

Make = Callable[..., RewardManager]

_RESPONSES = ("one", "two", "three", "four", "five")


def _raising() -> Callable[..., float]:
    def raises(**arguments: Any) -> float:
        msg = "the judge is on holiday"
        raise LookupError(msg)

    return raises


# Made, not defined here: a function of a module is sent by its name, and another process would load pytest and torch for it.
_raises = _raising()

_MISSING: dict[str, Callable[..., Any]] = {
    "raises": _raises,
    "none": lambda **arguments: None,
    "nan": lambda **arguments: float("nan"),
    "infinite": lambda **arguments: float("inf"),
    "no score": lambda **arguments: {"accuracy": 1.0},
    "score is none": lambda **arguments: {"score": None},
    "text": lambda **arguments: "good",
}


def rows(texts: Sequence[str] = _RESPONSES, *, with_extra_info: bool = True) -> DataProto:
    """A batch of responses, each ended, row i with ground truth ``truth-i`` and data source ``source-i``."""
    tokenizer = TinyTokenizer()
    columns: dict[str, list[Any]] = {
        "data_source": [f"source-{row}" for row in range(len(texts))],
        "reward_model": [{"style": "rule", "ground_truth": f"truth-{row}"} for row in range(len(texts))],
        "uid": [f"uid-{row}" for row in range(len(texts))],
    }
    if with_extra_info:
        columns["extra_info"] = [{"index": row} for row in range(len(texts))]
    return DataProto.from_dict(
        tensors={"responses": jagged_from_rows([[*tokenizer.encode(text), EOS_ID] for text in texts])},
        non_tensors={name: _objects(values) for name, values in columns.items()},
    )


def _objects(values: Sequence[Any]) -> np.ndarray:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


class RewardManagerContract(ContractSuite):
    """Override ``manager_class``, or ``make_manager`` for a manager that is built differently."""

    manager_class: type[RewardManager]

    timeout_s = 20.0
    """Deadline given to the manager where no test is about deadlines."""

    def make_manager(self, reward_function: Callable[..., Any], timeout_s: float) -> RewardManager:
        """A manager that scores with ``reward_function`` and decodes with ``TinyTokenizer``."""
        config = SimpleNamespace(
            reward_model=SimpleNamespace(
                timeout=timeout_s,
                num_workers=2,
                memory_limit_mb=1024,
                max_concurrent=None,
                max_rpm=None,
                max_tpm=None,
                estimated_tokens_per_request=2000,
                reward_kwargs={},
            ),
            trainer=SimpleNamespace(max_failed_reward_fraction=1.0),
        )
        return self.manager_class(reward_function, TinyTokenizer(), config)  # type: ignore[call-arg]

    @pytest.fixture
    def manage(self) -> Iterator[Make]:
        """Builds managers that are closed after the test."""
        opened: list[RewardManager] = []

        def make(reward_function: Callable[..., Any], timeout_s: float | None = None) -> RewardManager:
            opened.append(self.make_manager(reward_function, timeout_s or self.timeout_s))
            return opened[-1]

        yield make
        for manager in opened:
            manager.close()

    def test_results_are_in_the_order_of_the_rows(self, manage: Make) -> None:
        """Row i of the result belongs to row i of the batch, however long each took.

        If this fails: results are collected as they come. Rewards would belong to other responses, without an error.
        """

        async def later_for_earlier(*, extra_info: Any, **arguments: Any) -> float:
            await asyncio.sleep(0.02 * (len(_RESPONSES) - extra_info["index"]))
            return float(extra_info["index"])

        results = manage(later_for_earlier).collect(rows())
        assert [result.score for result in results] == [0.0, 1.0, 2.0, 3.0, 4.0]

    def test_no_rows_have_no_results(self, manage: Make) -> None:
        """An empty batch is legal.

        If this fails: the manager stacks or reduces over nothing.
        """
        assert manage(lambda **arguments: 1.0).collect(rows().select_idxs([])) == []

    @pytest.mark.parametrize("kind", ["sync", "async"])
    def test_functions_of_both_kinds(self, manage: Make, kind: str) -> None:
        """A plain function and a coroutine function give the same results.

        If this fails: a coroutine is taken for a reward, or a plain function is awaited.
        """

        def plain(*, solution_str: str, **arguments: Any) -> float:
            return float(len(solution_str))

        async def coroutine(**arguments: Any) -> float:
            await asyncio.sleep(0)
            return plain(**arguments)

        results = manage(plain if kind == "sync" else coroutine).collect(rows())
        assert [result.score for result in results] == [3.0, 3.0, 5.0, 4.0, 4.0]

    def test_a_function_sees_its_own_row(self, manage: Make) -> None:
        """Text without special tokens, ground truth, data source and extra info are those of the row.

        If this fails: end-of-sequence text is left in the response (exact matches then fail), or columns are mixed up.
        """

        def note(*, data_source: str, solution_str: str, ground_truth: Any, extra_info: Any) -> dict[str, Any]:
            return {"score": 1.0, "seen": [solution_str, data_source, ground_truth, extra_info]}

        results = manage(note).collect(rows())
        assert [result.extra.get("seen") for result in results] == [
            [text, f"source-{row}", f"truth-{row}", {"index": row}] for row, text in enumerate(_RESPONSES)
        ]

    def test_extra_info_may_be_absent(self, manage: Make) -> None:
        """Data without that column is scored too.

        If this fails: the column is read without looking whether it is there.
        """
        results = manage(lambda extra_info=None, **arguments: float(extra_info is None)).collect(
            rows(with_extra_info=False)
        )
        assert [result.score for result in results] == [1.0] * len(_RESPONSES)

    def test_a_dict_brings_more_than_its_score(self, manage: Make) -> None:
        """Other entries of a dict come back as ``extra``.

        If this fails: they are dropped, or ``score`` is repeated among them.
        """
        results = manage(lambda **arguments: {"score": 2, "accuracy": 1.0, "pred": "x"}).collect(rows())
        assert results == [RewardResult(2.0, {"accuracy": 1.0, "pred": "x"})] * len(_RESPONSES)

    @pytest.mark.parametrize("kind", sorted(_MISSING))
    def test_a_missing_reward_is_never_zero(self, manage: Make, kind: str) -> None:
        """What is no number has no score and says why; the other rows have theirs.

        If this fails: failures are scored 0 (or NaN), and the policy learns from the judge's accidents.
        """

        def partly(*, extra_info: Any, **arguments: Any) -> Any:
            return 1.0 if extra_info["index"] % 2 else _MISSING[kind](**arguments)

        results = manage(partly).collect(rows())
        assert [result.score for result in results] == [None, 1.0, None, 1.0, None]
        assert all(result.error for result in results[::2])
        assert [result.error for result in results[1::2]] == [None, None]

    def test_an_error_says_what_happened(self, manage: Make) -> None:
        """The reason holds the exception's type and text.

        If this fails: the log says that rewards are missing, and nothing about why.
        """
        error = manage(_raises).collect(rows())[0].error
        assert "LookupError" in str(error)
        assert "the judge is on holiday" in str(error)

    def test_scoring_may_start_early(self, manage: Make) -> None:
        """Rows that were submitted before, some or all and in any order, are collected in the order of the batch.

        If this fails: results of ``submit`` are returned in the order of submission, twice, or for other rows.
        """
        manager = manage(lambda extra_info, **arguments: float(extra_info["index"]))
        batch = rows()
        manager.submit(batch.select_idxs([4, 2]))
        manager.submit(batch.select_idxs([0]))
        chosen = batch.select_idxs([2, 3, 0, 4])
        assert [result.score for result in manager.collect(chosen)] == [2.0, 3.0, 0.0, 4.0]

    def test_every_row_is_scored_once(self, manage: Make, tmp_path: Path) -> None:
        """Submitting and collecting a row calls the function once; equal rows are rows of their own.

        If this fails: judges are asked (and paid) twice for what was submitted, or the second of two equal responses has
        no reward.
        """
        calls = tmp_path / "calls"

        def count(*, solution_str: str, **arguments: Any) -> float:
            with calls.open("a") as file:
                file.write(f"{solution_str}\n")
            return 1.0

        manager = manage(count)
        batch = rows().select_idxs([0, 0, 1])
        manager.submit(batch.select_idxs([0]))
        assert [result.score for result in manager.collect(batch)] == [1.0, 1.0, 1.0]
        assert sorted(calls.read_text().split()) == ["one", "one", "two"]

    def test_the_batch_stays_as_it_is(self, manage: Make) -> None:
        """Scoring reads its batch.

        If this fails: the manager adds columns to, or decodes into, a batch that others hold.
        """
        batch = rows()
        manage(lambda **arguments: 1.0).collect(batch)
        assert batch.equals(rows())


class RewardManagerDeadlineContract(RewardManagerContract):
    """For managers that can leave a function behind that hangs."""

    seconds_late = 10.0
    """How long after its deadline a manager may answer."""

    def test_what_hangs_is_missing(self, manage: Make) -> None:
        """A row whose function does not come back has no reward, in bounded time; the others have theirs.

        If this fails: one judge that hangs stops the run without a word. Give every row a deadline.
        """

        def hang(*, extra_info: Any, **arguments: Any) -> float:
            if extra_info["index"] == 1:
                time.sleep(30)
            return 1.0

        manager = manage(hang, timeout_s=0.3)
        started = time.monotonic()
        results = manager.collect(rows())
        assert time.monotonic() - started < 0.3 + self.seconds_late
        assert [result.score for result in results] == [1.0, None, 1.0, 1.0, 1.0]
        assert "0.3" in str(results[1].error)
