"""Find the distributions that have plugins, by their entry points, and load them one by one.

The entry point's name must be the distribution's name. Two distributions that use one name would otherwise hide one
another, and which of the two is found first depends on the order of directories.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

from rl_core.plugins.distributions import (
    Distribution,
    Status,
    canonical_name,
    load_distribution,
    metadata_field,
)
from rl_core.plugins.hookspecs import ENTRY_POINT_GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rl_core.plugins.selection import Selection


@dataclass(frozen=True, slots=True)
class Candidate:
    """One entry point, not loaded yet."""

    entry_point: str
    target: str
    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def find_candidates() -> tuple[Candidate, ...]:
    """Every entry point of the group, sorted by distribution; reads metadata and imports nothing."""
    found = []
    for entry_point in metadata.entry_points(group=ENTRY_POINT_GROUP):
        name = metadata_field(entry_point.dist, "Name", entry_point.name)
        version = metadata_field(entry_point.dist, "Version", "of unknown version")
        found.append(Candidate(entry_point.name, entry_point.value, name, version))
    return tuple(sorted(found, key=lambda candidate: (canonical_name(candidate.name), candidate.entry_point)))


def load_candidates(candidates: Iterable[Candidate], selection: Selection) -> tuple[Distribution, ...]:
    """Load what the selection lets in; a failure of one never keeps another from loading."""
    by_distribution = defaultdict(list)
    by_entry_point = defaultdict(list)
    for candidate in candidates:
        by_distribution[canonical_name(candidate.name)].append(candidate)
        by_entry_point[canonical_name(candidate.entry_point)].append(candidate)
    return tuple(_load(group, by_entry_point, selection) for group in by_distribution.values())


def _load(group: Sequence[Candidate], taken: Mapping[str, Sequence[Candidate]], selection: Selection) -> Distribution:
    first = group[0]
    if reason := selection.reason_against(first.name):
        status = Status("blocked", reason)
    elif reason := _naming_problem(group, taken):
        status = Status("broken", reason)
    else:
        return load_distribution(first.name, first.version, first.target)
    return Distribution(first.name, first.version, first.target, status)


def _naming_problem(group: Sequence[Candidate], taken: Mapping[str, Sequence[Candidate]]) -> str | None:
    first = group[0]
    if len(group) > 1:
        names = ", ".join(candidate.entry_point for candidate in group)
        return f"it has {len(group)} entry points ({names}); one is enough"
    if canonical_name(first.entry_point) == canonical_name(first.name):
        return None
    others = [str(other) for other in taken[canonical_name(first.entry_point)] if other is not first]
    shared = f", as is that of {' and '.join(others)}" if others else ""
    return f"its entry point is named {first.entry_point!r}{shared}; it must have the distribution's own name"
