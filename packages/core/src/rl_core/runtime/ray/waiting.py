"""Who waits for whom: one text from the calls the driver waits for and what the workers last said of themselves."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rl_core.runtime.ray.health import Pending
    from rl_core.runtime.ray.heartbeat import Sign

_COLLECTIVE_MARKS = ("torch/distributed/distributed_c10d.py", "torch_collective.py")
"""Parts of file names that only code inside a collective operation has on its stack."""
_STACK_LINES = 8


def waiting_report(
    pending: Sequence[Pending], signs: Mapping[str, Sign], soft_deadline_s: float, *, late_s: float
) -> str | None:
    """A report on every pending call, if the oldest is older than ``soft_deadline_s``.

    Args:
        pending: calls, the oldest first.
        signs: newest beat of each worker, by name.
        soft_deadline_s: seconds.
        late_s: a beat older than this means that the worker does not answer.
    """
    now = time.monotonic()
    if not pending or now - pending[0].started < soft_deadline_s:
        return None
    oldest = now - pending[0].started
    head = (
        f"watchdog: the run has waited {oldest:.0f} s for {pending[0].method} ({str(pending[0].place) or 'no phase'})."
    )
    return "\n".join([head, *waiting_lines(pending, signs, late_s=late_s)])


def waiting_lines(pending: Sequence[Pending], signs: Mapping[str, Sign], *, late_s: float) -> list[str]:
    """Who waits for whom in each group, then every call with the stack of its worker; those that are waited for first."""
    now = time.monotonic()
    lines: list[str] = []
    waiting: list[Pending] = []
    held: list[Pending] = []
    for group in dict.fromkeys(call.member.group for call in pending):
        calls = [call for call in pending if call.member.group == group]
        here = [call for call in calls if _waits(signs.get(call.member.name), late_s)]
        there = [call for call in calls if call not in here]
        if here and there:
            lines.append(f"  In a collective operation: {_names(here)}. They wait for: {_names(there)}.")
        waiting += here
        held += there
    for call in held + waiting:
        lines += _paragraph(call, signs.get(call.member.name), now, late_s)
    return lines


def _names(calls: Sequence[Pending]) -> str:
    return ", ".join(dict.fromkeys(call.member.name for call in calls))


def _waits(sign: Sign | None, late_s: float) -> bool:
    """Whether a worker is in a collective operation and answers: it is held up by others."""
    return sign is not None and sign.age_s <= late_s and any(mark in sign.beat.stack for mark in _COLLECTIVE_MARKS)


def _paragraph(call: Pending, sign: Sign | None, now: float, late_s: float) -> list[str]:
    who = f"{call.member.name} (node {call.member.node_ip}, pid {call.member.pid})"
    head = f"  {who}: {call.method} since {now - call.started:.0f} s"
    if sign is None:
        return [f"{head}; it has not sent a heartbeat yet"]
    is_late, beat = sign.age_s > late_s, sign.beat
    if is_late:
        head += (
            f"; its last heartbeat, {sign.age_s:.0f} s ago, came from {beat.call or 'between two calls'}: the process is "
            "stopped, gone, or holds the interpreter"
        )
    elif beat.call is None:
        head += "; it has not begun"
    elif beat.call != call.method:
        head += f"; it has not begun: the worker is in {beat.call} since {beat.since_s + sign.age_s:.0f} s"
    return [head, *(f"    {line}" for line in beat.stack.splitlines()[-_STACK_LINES:])]
