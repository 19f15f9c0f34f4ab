"""A reward that is dense enough to learn from by chance, and cheap for any length of response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """Score one response.

    Args:
        data_source: which data the row came from; this function treats all alike.
        solution_str: the decoded response.
        ground_truth: the answer, of any type that prints as text.
        extra_info: further columns of the row; not used.

    Returns:
        ``score`` in [0, 1]: the share of the response's characters that occur in the ground truth, 0 for an empty
        response. ``exact``: 1.0 when the response is the ground truth up to surrounding white space; only logged.
    """
    response, truth = solution_str.strip(), str(ground_truth).strip()
    allowed = frozenset(truth)
    shared = sum(character in allowed for character in response)
    return {"score": shared / len(response) if response else 0.0, "exact": float(response == truth)}
