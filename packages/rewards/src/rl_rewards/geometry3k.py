r"""Geometry3K: mathematics, and a small part of the score for the form: thinking in tags, then a box."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl_rewards import math
from rl_rewards.answers import last_boxed, response_text


def compute_score(
    *,
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    format_weight: float = 0.1,
) -> float:
    r"""Score answer and form.

    Args:
        data_source: not used.
        solution_str: the response.
        ground_truth: as for ``rl_rewards.math``.
        extra_info: not used.
        format_weight: the form's part of the score.

    Returns:
        ``1 - format_weight`` for a right answer in a box, plus ``format_weight`` for ``<think>...</think>`` followed by a box.

    Raises:
        GroundTruthError: there is no right answer.
        GraderError: the right answer cannot be compared with anything.
    """
    right = math.compute_score(
        data_source=data_source, solution_str=solution_str, ground_truth=ground_truth, extract="boxed"
    )
    return (1.0 - format_weight) * right + format_weight * float(keeps_form(response_text(solution_str)))


def keeps_form(text: str) -> bool:
    r"""Whether the response thinks in one pair of tags, from its beginning on, and boxes an answer after it."""
    thinking, closed, rest = text.partition("</think>")
    is_thinking = thinking.lstrip().startswith("<think>") and thinking.count("<think>") == 1
    return bool(is_thinking and closed and "</think>" not in rest and last_boxed(rest) is not None)
