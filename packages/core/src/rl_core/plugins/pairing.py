"""Which resharding joins a backend and a rollout: the most specific one that is available.

Keys are ``(backend | *, rollout | *, transport)``. A record that names both sides beats one that names one, which
beats one that names none; among equals the transport decides, in the caller's order of preference, or anything before
``generic`` when the caller has none. Equals of one distribution follow the order in which it registered them; equals
of two distributions are a conflict, because nothing but luck could decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rl_core.errors import PluginConflictError, PluginNotFoundError
from rl_core.plugins import explanations
from rl_core.plugins.records import ANY, GENERIC_TRANSPORT, ReshardingRecord
from rl_core.plugins.requirements import check_requirements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_core.plugins.lookup import Entry, Lookup


@dataclass(frozen=True, slots=True)
class Pairing:
    """The resharding chosen for a backend and a rollout."""

    record: ReshardingRecord
    reason: str
    """Why this one, and why not each one that would have come before it."""


@dataclass(frozen=True, slots=True)
class _Option:
    entry: Entry
    record: ReshardingRecord
    rank: tuple[int, int]

    @property
    def key(self) -> str:
        return f"({self.record.backend}, {self.record.rollout}, {self.record.transport})"


def choose_pairing(lookup: Lookup, backend: str, rollout: str, transports: Sequence[str] | None) -> Pairing:
    """Choose the resharding of two installed engines.

    Args:
        lookup: the registered records.
        backend: canonical name of the backend.
        rollout: canonical name of the rollout.
        transports: those that work here, the preferred one first; None takes all as possible.

    Raises:
        PluginNotFoundError: none fits.
        PluginConflictError: two distributions have an equally specific one, or the chosen one's name is taken twice.
    """
    options = _options(lookup, backend, rollout, transports)
    passed_over = []
    for position, option in enumerate(options):
        why_not = _unavailable(lookup, option.entry)
        if why_not:
            passed_over.append(f"{option.record.name} is passed over: {why_not}")
            continue
        rivals = [
            other.entry.distribution
            for other in options[position + 1 :]
            if other.rank == option.rank
            and other.entry.distribution is not option.entry.distribution
            and not _unavailable(lookup, other.entry)
        ]
        if rivals:
            subject = f"resharding {option.key} for backend {backend!r} and rollout {rollout!r}, or an equal one,"
            raise PluginConflictError(explanations.conflict(subject, [option.entry.distribution, *rivals]))
        lookup.require("resharding", option.record.name)
        return Pairing(option.record, "; ".join([_describe(option), *passed_over]))
    raise _nothing_fits(lookup, backend, rollout, transports, passed_over)


def _options(lookup: Lookup, backend: str, rollout: str, transports: Sequence[str] | None) -> list[_Option]:
    """Every record that fits, most specific first; equals stay in the order of registration."""
    found = []
    for entry in lookup.entries("resharding"):
        record = entry.record
        if not isinstance(record, ReshardingRecord):
            continue
        fits = record.backend in (ANY, backend) and record.rollout in (ANY, rollout)
        if fits and (transports is None or record.transport in transports):
            wildcards = (record.backend == ANY) + (record.rollout == ANY)
            found.append(_Option(entry, record, (wildcards, _transport_rank(record.transport, transports))))
    return sorted(found, key=lambda option: option.rank)


def _transport_rank(transport: str, transports: Sequence[str] | None) -> int:
    return int(transport == GENERIC_TRANSPORT) if transports is None else list(transports).index(transport)


def _unavailable(lookup: Lookup, entry: Entry) -> str:
    status = lookup.status(entry)
    if status.word not in ("ok", "conflict"):
        return str(status)
    unmet = [result for result in check_requirements(entry.record.requires) if not result.satisfied]
    return "needs " + ", ".join(map(str, unmet)) if unmet else ""


def _describe(option: _Option) -> str:
    specificity = ("made for this pair", "made for one side of this pair", "works for any pair")[option.rank[0]]
    return f"{specificity}, {option.key} of {option.entry.distribution}"


def _nothing_fits(
    lookup: Lookup, backend: str, rollout: str, transports: Sequence[str] | None, passed_over: Sequence[str]
) -> PluginNotFoundError:
    by = "any transport" if transports is None else f"transports {list(transports)}"
    records = [entry.record for entry in lookup.entries("resharding")]
    registered = [
        f"{r.name} ({r.backend}, {r.rollout}, {r.transport})" for r in records if isinstance(r, ReshardingRecord)
    ]
    lines = [f"no resharding joins backend {backend!r} and rollout {rollout!r} by {by}."]
    lines.append(f"  Registered: {', '.join(registered) or 'none'}.")
    lines.extend(f"  {reason}." for reason in passed_over)
    lines.append(f"  Allow the transport {GENERIC_TRANSPORT!r}, or install a resharding for this pair.")
    return PluginNotFoundError("\n".join(lines))
