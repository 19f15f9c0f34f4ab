"""What goes wrong with a sandbox, as against what goes wrong with the code in it."""

from __future__ import annotations

from rl_core.errors import RlError


class SandboxError(RlError):
    """Code could not be run as asked: nothing is known about the code, so its reward is missing."""
