"""Which installed distributions may register plugins: ``RL_PLUGINS`` and ``RL_BLOCK_PLUGINS``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rl_core.errors import ConfigError
from rl_core.plugins.distributions import CORE_DISTRIBUTION, canonical_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ALLOW_VARIABLE: Final = "RL_PLUGINS"
BLOCK_VARIABLE: Final = "RL_BLOCK_PLUGINS"


@dataclass(frozen=True, slots=True)
class Selection:
    """The distributions let in; core's own parts always are.

    Raises:
        ConfigError: core itself is to be blocked.
    """

    allowed: frozenset[str] | None = None
    """Canonical names of the only ones let in; None lets in all that are installed."""
    blocked: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if CORE_DISTRIBUTION in self.blocked:
            msg = (
                f"{BLOCK_VARIABLE} names {CORE_DISTRIBUTION}, whose parts everything else is built from.\n"
                f"  To run with nothing but them, set {ALLOW_VARIABLE} to an empty string."
            )
            raise ConfigError(msg)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Selection:
        """Read both variables: ``RL_PLUGINS`` unset lets in all, empty none besides core's own."""
        allowed = environ.get(ALLOW_VARIABLE)
        return cls(
            allowed=None if allowed is None else split_names(allowed),
            blocked=split_names(environ.get(BLOCK_VARIABLE, "")),
        )

    def reason_against(self, name: str, *, explicit: bool = False) -> str | None:
        """Why the distribution is kept out, or None.

        Args:
            name: distribution name.
            explicit: it was registered by a call and not found by its entry point; ``RL_PLUGINS`` does not apply.
        """
        name = canonical_name(name)
        if name in self.blocked:
            return f"{BLOCK_VARIABLE} names it"
        if explicit or self.allowed is None or name == CORE_DISTRIBUTION or name in self.allowed:
            return None
        return f"{ALLOW_VARIABLE} does not name it"

    def unknown(self, installed: Iterable[str]) -> tuple[str, ...]:
        """One sentence for each selected name that no installed distribution has."""
        known = {canonical_name(name) for name in installed}
        chosen = ((ALLOW_VARIABLE, self.allowed or frozenset()), (BLOCK_VARIABLE, self.blocked))
        return tuple(
            f"{variable} names {name}, but no installed distribution of that name has plugins."
            for variable, names in chosen
            for name in sorted(names - known)
        )


def split_names(text: str) -> frozenset[str]:
    """Canonical distribution names of a comma-separated list."""
    return frozenset(canonical_name(part) for part in text.split(",") if part.strip())
