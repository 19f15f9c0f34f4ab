"""Numeric match: the answer of a response is the right number, up to a tolerance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from rl_rewards.answers import find_answer, response_text, ways_of
from rl_rewards.numbers import NUMBER, gold_number, last_number, parse_number


def compute_score(
    *,
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    extract: str | Sequence[str] = ("tag", "boxed", "hashes", "announced", "all"),
    rel_tol: float = 1e-6,
    abs_tol: float = 0.0,
) -> float:
    """Compare the answer with the right number.

    Args:
        data_source: not used.
        solution_str: the response.
        ground_truth: the right number, as text or as a number.
        extra_info: not used.
        extract: where the answer is looked for; see ``rl_rewards.answers.find_answer``. Of an answer that is marked the first
            number counts, of an unmarked response the last.
        rel_tol: difference that is allowed, as a part of the right number.
        abs_tol: difference that is allowed; the larger of the two holds.

    Returns:
        1.0 or 0.0.

    Raises:
        GroundTruthError: the ground truth is not a number.
        ValueError: ``extract`` is unknown.
    """
    right = gold_number(ground_truth)
    text = response_text(solution_str)
    ways = ways_of(extract)
    marked = find_answer(text, [way for way in ways if way != "all"])
    if marked is not None:
        number = parse_number(marked)
        if number is None and (first := NUMBER.search(marked)):
            number = parse_number(first.group())
    else:
        number = parse_number(last_number(find_answer(text, ["all"]) or "")) if "all" in ways else None
    if number is None:
        return 0.0
    allowed = max(abs(right) * Decimal(str(rel_tol)), Decimal(str(abs_tol)))
    return float(abs(number - right) <= allowed)
