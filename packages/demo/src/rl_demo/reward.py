"""The reward of GRPO: right or wrong, and nothing about how the answer is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl_demo.teacher import SO


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """Compare the end of the answer with the sum.

    Args:
        data_source: not used.
        solution_str: the response, ``85`` or ``7+8=15 so 85``.
        ground_truth: the sum, as text.
        extra_info: not used.

    Returns:
        ``score`` and ``acc``, 1.0 if what follows the last " so " (everything where there is none) is the sum and
        nothing else, otherwise 0.0; and ``shows_work``, 1.0 where there is such a word, which is logged and not rewarded.
    """
    work, _, answer = solution_str.rpartition(SO)
    score = float(answer == str(ground_truth))
    return {"score": score, "acc": score, "shows_work": float(bool(work))}
