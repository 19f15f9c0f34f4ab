"""One broken promise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Fault:
    """An implementation that is right except in one point.

    Attributes:
        name: what it does wrong, in a few words joined by dashes.
        promise: what it should do.
        caught_by: the test of the suite that says so.
        overrides: what makes a suite run on it (``rl_testing.contracts.runner.run_contract``).
    """

    name: str
    promise: str
    caught_by: str
    overrides: Mapping[str, Any]
