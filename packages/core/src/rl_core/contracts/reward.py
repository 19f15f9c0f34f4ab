"""Rewards: a function that scores one response, and a manager that runs many.

A reward function is called by keyword; it may be a coroutine function. It declares the arguments that it wants, of these:

====================  =============================================================================
``data_source``       of the row
``solution_str``      the response as text, without special tokens
``ground_truth``      of the row's ``reward_model``
``extra_info``        of the row; None where the data has none
``prompt_str``        the prompt as text, without special tokens
``raw_prompt``        the prompt's messages, where the data has them
``response_ids``      the response's tokens
``response_length``   their number
``uid``               names the prompt's group
``num_turns``         assistant turns of a conversation, 1 without one
====================  =============================================================================

A function with ``**arguments`` gets the first four, and those of the others that it names. One that names plurals
(``data_sources``, ``solution_strs``, ``ground_truths``, ``extra_infos`` and so on) is called once for many rows and returns
a list.

It returns a number, or a dict with ``score`` whose other entries are logged. A reward that raises, or returns None, NaN or a
dict without ``score``, is *missing*: it is counted, its row is left out of the update, and above a limit the run stops. It is
never taken for 0.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
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


class RewardFailure(StrEnum):
    """Why a reward is missing. The values are metric names, ``reward/<value>``."""

    ERROR = "error"
    """The function raised."""
    INVALID = "invalid"
    """It returned something else than a finite number."""
    TIMEOUT = "timeout"
    """It did not return before its deadline."""
    MEMORY = "memory"
    """It wanted more memory than it may have."""
    OUTPUT = "output"
    """It printed more than anybody would read."""
    CRASHED = "crashed"
    """Its process ended."""
    SKIPPED = "skipped"
    """It was not called: the step was lost before."""


@dataclass(frozen=True, slots=True)
class RewardResult:
    """The reward of one row.

    Attributes:
        score: the reward; None when it is missing.
        extra: other entries of a dict result (``reward_extra_info``), logged each step.
        error: why the reward is missing; None when it is there.
        failure: the same as a kind that can be counted.
        is_trained: False for a response that is scored and counts in its group, and that no token of is trained on.
    """

    score: float | None
    extra: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    failure: RewardFailure | None = None
    is_trained: bool = True


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


MAX_ERROR_CHARS = 2_000
"""An error is a sentence for a log, whatever it quotes."""


def missing_reward(failure: RewardFailure, error: str, extra: Mapping[str, Any] | None = None) -> RewardResult:
    """A result without a score; the text is cut to ``MAX_ERROR_CHARS``."""
    text = error if len(error) <= MAX_ERROR_CHARS else f"{error[:MAX_ERROR_CHARS]}..."
    return RewardResult(None, extra or {}, error=text, failure=failure)


def parse_reward(value: Any) -> RewardResult:
    """Judge what a reward function returned.

    Returns:
        A result with a finite score, or one without a score that says what was wrong.
    """
    extra: Mapping[str, Any] = {}
    score = value
    if isinstance(value, Mapping):
        if "score" not in value:
            keys = sorted(map(str, value))
            return missing_reward(RewardFailure.INVALID, f"the reward is a dict without 'score' (keys: {keys})")
        score = value["score"]
        extra = {key: item for key, item in value.items() if key != "score"}
    if score is None:
        return missing_reward(RewardFailure.INVALID, "the reward is None", extra)
    try:
        number = float(score)
    except (TypeError, ValueError, RuntimeError):
        return missing_reward(RewardFailure.INVALID, f"the reward is {score!r}, not a number", extra)
    except OverflowError:
        return missing_reward(RewardFailure.INVALID, "the reward is larger than any float", extra)
    if not math.isfinite(number):
        return missing_reward(RewardFailure.INVALID, f"the reward is {number}", extra)
    return RewardResult(number, extra)
