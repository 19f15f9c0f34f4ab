"""A verifier that fails says so; it never turns its own failure into a wrong answer."""

from __future__ import annotations

from rl_core.errors import RlError


class GraderError(RlError):
    """A verifier could not judge: nothing is known about the response, so its reward is missing."""


class GroundTruthError(GraderError, ValueError):
    """The ground truth of a row cannot be used: the row is at fault, not the response."""
