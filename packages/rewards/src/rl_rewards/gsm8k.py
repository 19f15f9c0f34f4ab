"""GSM8K: grade-school problems whose answer is one number, given after ``####``.

Source: Cobbe et al. 2021, arXiv:2110.14168.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from rl_rewards.numbers import NUMBER, parse_number

MARKER = "####"


def compute_score(
    *,
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    method: Literal["strict", "flexible"] = "strict",
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
        ValueError: the ground truth is not a number: the row is at fault, not the response.
    """
    right = parse_number(ground_truth)
    if right is None:
        msg = f"ground truth {ground_truth!r} is not a number; GSM8K rows need one in reward_model.ground_truth"
        raise ValueError(msg)
    answer = parse_number(extract_answer(solution_str, method))
    if answer is None:
        return 0.0
    return score if answer == right else format_score


def extract_answer(text: str, method: Literal["strict", "flexible"] = "strict") -> str:
    """The answer as written; empty when there is none."""
    if method == "strict":
        _, marker, tail = text.rpartition(MARKER)
        match = NUMBER.match(tail.lstrip()) if marker else None
        return match.group() if match else ""
    numbers = NUMBER.findall(text)
    return numbers[-1] if numbers else ""
