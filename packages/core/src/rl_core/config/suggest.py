"""The known keys closest to an unknown one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_GOOD_ENOUGH = 0.6
_MOST = 3


def closest_keys(path: str, known: Iterable[str]) -> list[str]:
    """Known paths that the writer of ``path`` may have meant, the likeliest first.

    The last part weighs most, because a typing error usually sits there; the parts before it are compared from
    the end, so that a path written without its beginning is found too.

    Args:
        path: dotted path that no schema has.
        known: every dotted path that exists.
    """
    parts = path.split(".")
    scored = []
    for candidate in known:
        score = _similarity(parts, candidate.split("."))
        if score >= _GOOD_ENOUGH:
            scored.append((-score, candidate))
    scored.sort()
    if not scored:
        return []
    best = -scored[0][0]
    return [candidate for score, candidate in scored[:_MOST] if -score >= best - 0.1]


def _similarity(parts: list[str], candidate: list[str]) -> float:
    last = _ratio(parts[-1], candidate[-1])
    if last < _GOOD_ENOUGH:
        return 0.0
    above, candidate_above = parts[:-1], candidate[:-1]
    if not above:
        return 0.75 * last + 0.25 * (not candidate_above)
    shared = sum(part in candidate_above for part in above) / len(above)
    aligned = sum(a == b for a, b in zip(reversed(above), reversed(candidate_above), strict=False)) / len(above)
    return 0.65 * last + 0.2 * shared + 0.15 * aligned


def _ratio(a: str, b: str) -> float:
    if a == b:
        return 1.0
    # A whole word inside the other name (lr in lr_warmup_steps) is no typing error, so plain similarity decides.
    return difflib.SequenceMatcher(None, a, b).ratio()
