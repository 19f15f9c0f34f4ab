"""Questions whose answer is a short text: exact match or F1 after the normalisation of SQuAD.

Source: Rajpurkar et al. 2016, arXiv:1606.05250 (section 6.1); Jin et al. 2025, arXiv:2503.09516 (as a reward of search).
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from rl_rewards.answers import find_answer, golds, response_text, ways_of

_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)
_ARTICLES: Final = re.compile(r"\b(?:a|an|the)\b")
MAX_CHARS: Final = 10_000
"""A longer answer is none."""

Metric = Literal["em", "f1", "contains"]


def compute_score(
    *,
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    metric: Metric = "em",
    extract: str | Sequence[str] = "tag",
) -> float:
    """Compare the answer with each of the right ones; the best counts.

    Args:
        data_source: not used.
        solution_str: the response.
        ground_truth: the right text, several of them, or ``{"target": ...}`` with one or several.
        extra_info: not used.
        metric: ``em``: equal after normalisation; ``f1``: of the words in common; ``contains``: a right text stands in the
            answer.
        extract: where the answer is looked for; see ``rl_rewards.answers.find_answer``.

    Returns:
        Between 0.0 and 1.0; 0.0 where there is no answer.

    Raises:
        GroundTruthError: there is no right text.
        ValueError: the metric or ``extract`` is unknown.
    """
    right = golds(ground_truth)
    if metric not in ("em", "f1", "contains"):
        msg = f"metric is {metric!r}; answers are compared by em, f1 or contains"
        raise ValueError(msg)
    answer = find_answer(response_text(solution_str), ways_of(extract))
    if answer is None or len(answer) > MAX_CHARS:
        return 0.0
    words = normalise(answer).split()
    return max(_compare(words, normalise(gold).split(), metric) for gold in right)


def f1_score(
    *, data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None
) -> float:
    """``compute_score`` with ``metric="f1"``, as a reward of its own."""
    return compute_score(
        data_source=data_source,
        solution_str=solution_str,
        ground_truth=ground_truth,
        extra_info=extra_info,
        metric="f1",
    )


def normalise(text: str) -> str:
    """Lower case, without punctuation and articles, one space between words."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _compare(words: list[str], right: list[str], metric: Metric) -> float:
    if not words or not right:
        return 0.0
    if metric == "em":
        return float(words == right)
    if metric == "contains":
        return float(f" {' '.join(right)} " in f" {' '.join(words)} ")
    common = sum((Counter(words) & Counter(right)).values())
    return 2 * common / (len(words) + len(right))
