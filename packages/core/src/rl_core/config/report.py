"""What is to be said about a configuration, sorted by how bad it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from rl_core.errors import ConfigError

INERT: Final = "keys without effect"
SPELLING: Final = "other spellings"
BATCH: Final = "batch sizes"
ENGINES: Final = "engines"
STEPS: Final = "steps"
POOLS: Final = "pools"
MEMORY: Final = "memory"
TOPICS: Final = (BATCH, STEPS, ENGINES, POOLS, MEMORY, SPELLING, INERT)


@dataclass(frozen=True)
class Finding:
    """One thing to tell."""

    topic: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass
class Report:
    """What is to be said about a configuration."""

    errors: list[Finding] = field(default_factory=list)
    """The run cannot start."""

    warnings: list[Finding] = field(default_factory=list)
    """The run is well defined, and probably not what was meant."""

    blockers: list[Finding] = field(default_factory=list)
    """The run is well defined, but this version or this machine cannot place it."""

    notes: list[Finding] = field(default_factory=list)
    """What the run does, and which given keys have no effect."""

    def lines(self, topic: str) -> list[str]:
        """Texts of the notes on one topic."""
        return [note.text for note in self.notes if note.topic == topic]

    def start_lines(self) -> list[str]:
        """What a run prints when it starts: warnings, other spellings, keys without effect; one line each."""
        warnings = [f"warning: {warning.text}" for warning in self.warnings]
        return [*warnings, *(f"note: {line}" for topic in (SPELLING, INERT) for line in self.lines(topic))]

    def raise_if_failed(self) -> None:
        """Refuse the configuration when there is an error.

        Raises:
            ConfigError: with every error.
        """
        if self.errors:
            raise ConfigError("\n".join(error.text for error in self.errors))
