"""Format: whether a response keeps the form that was asked for, whatever it answers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rl_rewards.answers import response_text


def compute_score(
    *,
    data_source: str,
    solution_str: str,
    ground_truth: Any = None,
    extra_info: Mapping[str, Any] | None = None,
    pattern: str | None = None,
    tags: Sequence[str] = ("think", "answer"),
    opened_by_prompt: bool = False,
) -> float:
    """Check the form of a response.

    Args:
        data_source: not used.
        solution_str: the response.
        ground_truth: not used.
        extra_info: not used.
        pattern: regular expression for the whole response, in which a full stop matches line ends too; replaces ``tags``. A
            pattern that takes exponential time takes it here too, until the deadline of the process.
        tags: each opened and closed exactly once, in this order, with something between, and only space outside of them.
        opened_by_prompt: the prompt ends with the first opening tag, so the response begins after it.

    Returns:
        1.0 or 0.0.
    """
    text = response_text(solution_str)
    if pattern is not None:
        return float(re.fullmatch(pattern, text, re.DOTALL) is not None)
    if opened_by_prompt:
        text = f"<{tags[0]}>{text}"
    return float(keeps_tags(text, tags))


def keeps_tags(text: str, tags: Sequence[str]) -> bool:
    """Whether ``text`` is ``<a>...</a> <b>...</b>`` for these tags, each of them once."""
    if any(text.count(mark) != 1 for tag in tags for mark in (f"<{tag}>", f"</{tag}>")):
        return False
    for tag in tags:
        before, _, rest = text.partition(f"<{tag}>")
        content, closed, text = rest.partition(f"</{tag}>")
        if before.strip() or not closed or not content.strip():
            return False
    return not text.strip()
