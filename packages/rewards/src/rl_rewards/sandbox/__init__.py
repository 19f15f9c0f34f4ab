"""Runs code that nobody has read: in processes of its own, without network, files, secrets, and for a limited time.

``run_code`` runs a program once, ``Sandbox`` the same program several times, ``probe`` says what works here.
``docs/rewards.md`` says what it protects from, and what not.
"""

from __future__ import annotations

from rl_rewards.sandbox.errors import SandboxError
from rl_rewards.sandbox.languages import LANGUAGES, Language, python
from rl_rewards.sandbox.local import Sandbox
from rl_rewards.sandbox.results import Limits, SandboxResult
from rl_rewards.sandbox.support import SandboxSupport, probe

__all__ = [
    "LANGUAGES",
    "Language",
    "Limits",
    "Sandbox",
    "SandboxError",
    "SandboxResult",
    "SandboxSupport",
    "open_sandbox",
    "probe",
    "python",
    "run_code",
]


def open_sandbox(
    code: str, *, limits: Limits, language: str | Language = "python", allow_weaker: bool = False
) -> Sandbox:
    """A sandbox for one program with every layer that works here.

    Raises:
        SandboxError: code would not be kept from something, and ``allow_weaker`` is false.
    """
    support = probe()
    support.require(allow_weaker=allow_weaker)
    return Sandbox(code, limits=limits, language=language, layers=support.layers)


def run_code(
    code: str,
    *,
    stdin: str = "",
    limits: Limits,
    language: str | Language = "python",
    allow_weaker: bool = False,
) -> SandboxResult:
    """Run a program once.

    Args:
        code: its text.
        stdin: what it can read.
        limits: what it may use.
        language: a name in ``LANGUAGES``, or a language.
        allow_weaker: run also where the sandbox does not keep code from everything that ``probe`` names.

    Raises:
        SandboxError: it could not be run; nothing is known about the program.
    """
    with open_sandbox(code, limits=limits, language=language, allow_weaker=allow_weaker) as box:
        return box.run(stdin)
