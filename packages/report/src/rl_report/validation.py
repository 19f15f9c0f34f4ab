"""Held-out results: one headline for each data source."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rl_report.run import Run, Series

_CORE = re.compile(r"val-core/(.+)/([^/]+)/mean@(\d+)")
_WORDS = {"acc": "accuracy"}


@dataclass(frozen=True, slots=True)
class Headline:
    """The number that a validation is judged by.

    Attributes:
        source: data source; empty where there is only one of no name.
        variable: accuracy, reward or loss.
        series: over the steps that were validated.
        answers: answers to a prompt; 0 where there are none.
    """

    source: str
    variable: str
    series: Series
    answers: int = 0

    @property
    def before(self) -> float:
        """At the first validation."""
        return self.series.first

    @property
    def after(self) -> float:
        """At the last validation."""
        return self.series.last

    @property
    def steps(self) -> tuple[int, int]:
        """First and last validation."""
        return self.series.steps[0], self.series.steps[-1]

    @property
    def is_compared(self) -> bool:
        """Whether there is more than one validation."""
        return len(self.series.steps) > 1


def headlines(run: Run) -> tuple[Headline, ...]:
    """Held-out accuracy or reward of each data source, and held-out loss; sources by name."""
    found = []
    for name in run.names:
        match = _CORE.fullmatch(name)
        series = run.series(name)
        if match and series:
            found.append(Headline(match[1], _WORDS.get(match[2], match[2]), series, int(match[3])))
    loss = run.series("val/loss")
    if loss:
        found.append(Headline("", "loss", loss))
    return tuple(found)
