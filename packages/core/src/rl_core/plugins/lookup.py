"""An immutable view of loaded distributions, in which one part is found by kind and name, or the reason why not."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from rl_core.errors import PluginApiError, PluginConflictError, PluginLoadError
from rl_core.plugins import explanations
from rl_core.plugins.distributions import Distribution, Status, api_status
from rl_core.plugins.records import ANY, Record, kind_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True)
class Entry:
    """A record and the distribution that registered it."""

    record: Record
    distribution: Distribution

    @property
    def label(self) -> str:
        """The part for messages: ``rollout 'acme' (rl-rollout-acme 1.2)``."""
        return f"{kind_label(self.record.kind)} {self.record.name!r} ({self.distribution})"


class Lookup:
    """Distributions by name, entries by (kind, name or alias), rewards also by the beginning of a name."""

    def __init__(self, distributions: Iterable[Distribution]) -> None:
        self.distributions = tuple(sorted(distributions, key=lambda found: found.name))
        self._index: dict[tuple[str, str], list[Entry]] = defaultdict(list)
        for entry in self.entries():
            for name in dict.fromkeys(entry.record.claims):
                self._index[entry.record.kind, name].append(entry)
        self._prefixes = sorted({name for _, name in self._index if name.endswith(ANY)}, key=len, reverse=True)

    def entries(self, kind: str | None = None) -> Iterator[Entry]:
        """Every registered record, of one kind or all, in order of distribution and registration."""
        for distribution in self.distributions:
            for record in distribution.records:
                if kind in (None, record.kind):
                    yield Entry(record, distribution)

    def named(self, kind: str, name: str) -> tuple[Entry, ...]:
        """Every entry that claims this name or alias; where none does, those with the longest prefix of it."""
        if (kind, name) not in self._index:
            prefixes = (claim for claim in self._prefixes if name.startswith(claim.removesuffix(ANY)))
            name = next((claim for claim in prefixes if (kind, claim) in self._index), name)
        return tuple(self._index.get((kind, name), ()))

    def rivals(self, entry: Entry) -> tuple[Entry, ...]:
        """Entries of other distributions that claim one of this entry's names."""
        claims = {
            id(claim.record): claim
            for name in entry.record.claims
            for claim in self._index.get((entry.record.kind, name), ())
        }
        return tuple(claim for claim in claims.values() if claim.distribution is not entry.distribution)

    def status(self, entry: Entry) -> Status:
        """Whether the entry may be asked for; installed engines are not looked at."""
        if entry.distribution.status.word == "broken":
            return entry.distribution.status
        if rivals := self.rivals(entry):
            return Status("conflict", f"{', '.join(str(rival.distribution) for rival in rivals)} registers it too")
        return api_status(entry.record)

    def usable(self, kind: str) -> tuple[Entry, ...]:
        """Entries of a kind that may be asked for."""
        return tuple(entry for entry in self.entries(kind) if self.status(entry).is_ok)

    def require(self, kind: str, name: str) -> Entry:
        """The one usable entry of that name.

        Raises:
            PluginError: one of its subclasses, by what is wrong: not found, blocked, conflict, load, API.
        """
        claims = self.named(kind, name)
        if not claims:
            raise explanations.missing(self, kind, name)
        owners = list({id(claim.distribution): claim.distribution for claim in claims}.values())
        if len(owners) > 1:
            raise PluginConflictError(explanations.conflict(f"{kind_label(kind)} name {name!r}", owners))
        status = self.status(claims[0])
        if not status.is_ok:
            _refuse(claims[0], status, self)
        return claims[0]


def _refuse(entry: Entry, status: Status, lookup: Lookup) -> NoReturn:
    if status.word == "conflict":
        distributions = [entry.distribution, *(rival.distribution for rival in lookup.rivals(entry))]
        subject = f"{kind_label(entry.record.kind)} {entry.record.name!r} or one of its aliases"
        raise PluginConflictError(explanations.conflict(subject, distributions))
    if status.word == "incompatible":
        raise PluginApiError(explanations.incompatible(entry.label, entry.record, entry.distribution, status))
    msg = f"{entry.label} is installed but broken: {status.reason}."
    raise PluginLoadError(msg) from entry.distribution.cause
