"""GSM8K: grade-school problems whose answer is one number, given after ``####``.

Source: Cobbe et al. 2021, arXiv:2110.14168.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from rl_rewards.answers import response_text
from rl_rewards.numbers import NUMBER, gold_number, last_number, parse_number

MARKER = "####"

Method = Literal["strict", "flexible"]


def compute_score(
    *,
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    method: Method = "strict",
    format_score: float = 0.0,
    score: float = 1.0,
) -> float:
    """Compare the answer with the ground truth as numbers.

    Args:
        data_source: not used.
        solution_str: the response.
        ground_truth: the right number, as text or as a number.
        extra_info: not used.
        method: ``strict`` reads the number after the last ``####``, ``flexible`` the last number of the response.
        format_score: for an answer that is readable but wrong.
        score: for the right answer.

    Returns:
        ``score``, ``format_score``, or 0.0 where no answer can be read. An empty response never matches.

    Raises:
        GroundTruthError: the ground truth is not a number.
        ValueError: there is no such method.
    """
    right = gold_number(ground_truth)
    answer = parse_number(extract_answer(response_text(solution_str), method))
    if answer is None:
        return 0.0
    return float(score if answer == right else format_score)


def flexible_score(
    *,
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    format_score: float = 0.0,
    score: float = 1.0,
) -> float:
    """``compute_score`` with ``method="flexible"``, as a reward of its own."""
    return compute_score(
        data_source=data_source,
        solution_str=solution_str,
        ground_truth=ground_truth,
        extra_info=extra_info,
        method="flexible",
        format_score=format_score,
        score=score,
    )


def extract_answer(text: str, method: Method = "strict") -> str:
    """The answer as written; empty when there is none.

    Raises:
        ValueError: there is no such method.
    """
    if method == "strict":
        _, marker, tail = text.rpartition(MARKER)
        match = NUMBER.match(tail.lstrip()) if marker else None
        return match.group() if match else ""
    if method == "flexible":
        return last_number(text)
    msg = f"GSM8K has no method {method!r}; it has strict and flexible"
    raise ValueError(msg)
