"""Rewards: a function that scores one response, and a manager that runs many.

A reward function is called by keyword with ``data_source``, ``solution_str``, ``ground_truth`` and ``extra_info``; it may
be a coroutine function. It returns a number, or a dict with ``score`` whose other entries are logged.

A reward that raises, or returns None, NaN or a dict without ``score``, is *missing*: it is counted, its row is left out of
the update, and above a limit the run stops. It is never taken for 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rl_dataproto import DataProto

RewardValue = float | Mapping[str, Any]


class RewardFunction(Protocol):
    """Scores one response."""

    def __call__(
        self,
        *,
        data_source: str,
        solution_str: str,
        ground_truth: Any,
        extra_info: Mapping[str, Any] | None = None,
    ) -> RewardValue | Awaitable[RewardValue]:
        """The score, or a dict that holds it under ``score``."""


@dataclass(frozen=True, slots=True)
class RewardResult:
    """The reward of one row.

    Attributes:
        score: the reward; None when it is missing.
        extra: other entries of a dict result (``reward_extra_info``), logged each step.
        error: why the reward is missing; None when it is there.
    """

    score: float | None
    extra: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


class RewardManager(ABC):
    """Runs a reward function over the rows of a batch.

    Scoring may start as each response finishes (``submit``); ``collect`` waits for what is left, never longer than its
    deadline allows.
    """

    def submit(self, rows: DataProto) -> None:  # noqa: B027 - scoring ahead of time is optional
        """Start scoring rows whose response is there. A manager that scores in ``collect`` does nothing here."""

    @abstractmethod
    def collect(self, batch: DataProto) -> list[RewardResult]:
        """One result for each row of ``batch``, in its order.

        Args:
            batch: needs ``responses`` (jagged tokens) and the columns ``data_source`` and ``reward_model``;
                ``extra_info`` if the data has it.
        """

    def close(self) -> None:  # noqa: B027 - only managers with processes have something to end
        """End workers, if there are any."""


def parse_reward(value: Any) -> RewardResult:
    """Judge what a reward function returned.

    Returns:
        A result with a finite score, or one without a score that says what was wrong.
    """
    extra: Mapping[str, Any] = {}
    score = value
    if isinstance(value, Mapping):
        if "score" not in value:
            return RewardResult(None, error=f"the reward is a dict without 'score' (keys: {sorted(map(str, value))})")
        score = value["score"]
        extra = {key: item for key, item in value.items() if key != "score"}
    if score is None:
        return RewardResult(None, extra, error="the reward is None")
    try:
        number = float(score)
    except (TypeError, ValueError):
        return RewardResult(None, extra, error=f"the reward is {score!r}, not a number")
    if number != number or number in (float("inf"), float("-inf")):
        return RewardResult(None, extra, error=f"the reward is {number}")
    return RewardResult(number, extra)
