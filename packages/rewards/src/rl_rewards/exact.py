"""Exact match: the answer of a response is the right text, character for character."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rl_rewards.answers import find_answer, golds, response_text, ways_of


def compute_score(
    *,
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    extract: str | Sequence[str] = ("tag", "boxed", "hashes", "announced", "all"),
    ignore_case: bool = False,
    ignore_spaces: bool = False,
) -> float:
    """Compare the answer with the right text. Space around both does not count.

    Args:
        data_source: not used.
        solution_str: the response.
        ground_truth: the right text, or several of them.
        extra_info: not used.
        extract: where the answer is looked for; see ``rl_rewards.answers.find_answer``. Without a mark, all of the response.
        ignore_case: ``Paris`` is ``paris``.
        ignore_spaces: runs of space, tabs and line ends are one space.

    Returns:
        1.0 or 0.0. An empty answer matches nothing.

    Raises:
        GroundTruthError: there is no right text.
        ValueError: ``extract`` is unknown.
    """
    right = golds(ground_truth)
    answer = find_answer(response_text(solution_str), ways_of(extract))
    if not answer:
        return 0.0

    def spelled(text: str) -> str:
        text = " ".join(text.split()) if ignore_spaces else text.strip()
        return text.casefold() if ignore_case else text

    return float(spelled(answer) in {spelled(text) for text in right})
