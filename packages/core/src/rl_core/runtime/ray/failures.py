"""From what Ray reports to an error that names the worker, its call and the reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from rl_core.errors import DeadlineError, RlError, WorkerError
from rl_core.runtime.ray.host import RemoteFailure

if TYPE_CHECKING:
    from rl_core.runtime.ray.health import Pending

Key = TypeVar("Key")

LAST_LINES = 15
"""Lines of a dead worker's output that its error shows."""

_CRASH = re.compile(r"\*\*\* (SIG[A-Z]+) received|Fatal Python error: (.+)")
"""What Ray's and Python's signal handlers print when native code crashes."""
_NOISE = re.compile(r"^Extension modules: |^\[.* E .*\] logging\.cc:\d+: ")
"""What they print besides: a list of modules, and the same once more with a prefix."""


def describe(
    pending: Pending,
    error: BaseException,
    *,
    last_lines: Callable[[], Sequence[str]],
    redact: Callable[[str], str],
) -> RlError:
    """The error for a call that ended with ``error``.

    Args:
        pending: the call.
        error: what ``ray.get`` raised.
        last_lines: reads the worker's last output, without secrets; only a dead worker's is asked for.
        redact: takes secrets out of a text.
    """
    cause = _cause(error)
    if isinstance(cause, RemoteFailure):
        shown = cause.without(redact)
        failure: RlError = WorkerError(f"{pending} failed: {shown}")
        failure.__cause__ = shown
        if not cause.is_expected:
            failure.add_note(shown.trace)
        return failure
    if is_death(error):
        return dead(str(pending), exit_reason(error), last_lines())
    failure = WorkerError(redact(f"{pending} failed: {type(error).__name__}: {error}"))
    failure.__cause__ = error
    return failure


def dead(doing: str, reason: str, last_lines: Sequence[str]) -> WorkerError:
    """The error for a worker whose process is gone.

    Args:
        doing: the worker and its call.
        reason: why it is gone, as a sentence.
        last_lines: of its output.
    """
    crashes = [found for line in last_lines if (found := _CRASH.search(line))]
    if crashes:
        reason = f"It crashed in native code ({crashes[0].group(1) or crashes[0].group(2)})."
    shown = [line for line in last_lines if not _NOISE.search(line)]
    text = "\n".join(f"  | {line}" for line in shown[-LAST_LINES:])
    printed = f"\n  Its last lines of output:\n{text}" if text else " It had printed nothing."
    return WorkerError(f"{doing}: the process is gone. {reason}{printed}")


def root_cause(errors: Mapping[Key, BaseException]) -> Key:
    """Which of several failures made the others: a death before an exception before what a peer saw.

    Args:
        errors: what names a call -> its error, in rank order.
    """

    def order(key: Key) -> int:
        if is_death(errors[key]):
            return 0
        return 2 if is_collateral(errors[key]) else 1

    return min(errors, key=order)


def is_death(error: BaseException) -> bool:
    """Whether the worker's process, or its node, is gone."""
    import ray  # noqa: PLC0415 - layers above choose a runtime without loading Ray

    gone = (ray.exceptions.RayActorError, ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError)
    return isinstance(error, gone)


def is_collateral(error: BaseException) -> bool:
    """Whether ``error`` only says that another worker failed or did not come."""
    cause = _cause(error)
    return isinstance(cause, DeadlineError) or (isinstance(cause, RemoteFailure) and cause.is_collateral)


def exit_reason(error: BaseException) -> str:
    """Ray's account of a death in one or two sentences."""
    text = " ".join(str(error).split())
    if "running low on memory" in text:
        return "Ray ended it because its node ran out of memory: lower what the phase needs, or give the node more."
    if "node" in text and ("died" in text or "dead" in text) and "heartbeat" in text.lower():
        return "Its node is gone: it was ended, crashed, or cannot be reached."
    found = re.search(r"[Ee]xit[ _]detail: (.+)", text)
    detail = found.group(1) if found else text
    if "connection error code 2" in detail:
        return "It was killed from outside (SIGKILL, by hand or by a kernel out of memory) or crashed in native code."
    return f"Ray says: {detail}"


def _cause(error: BaseException) -> BaseException:
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, BaseException) else error
