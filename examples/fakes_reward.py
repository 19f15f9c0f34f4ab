"""A reward for the fakes: the share of a response's characters that are digits.

Small enough to be learned by a model of a few thousand weights in a minute, and a template for a reward of your own:
`custom_reward_function.path=examples/fakes_reward.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """Score one response.

    Args:
        data_source: names the row's origin; rewards that serve several look at it.
        solution_str: the response as text.
        ground_truth: the row's reference answer; unused here.
        extra_info: the row's other facts; unused here.

    Returns:
        `score` in [0, 1], 0 for an empty response; the other entries are logged.
    """
    if not solution_str:
        return {"score": 0.0, "num_characters": 0.0}
    digits = sum(character.isdigit() for character in solution_str)
    return {"score": digits / len(solution_str), "num_characters": float(len(solution_str))}
