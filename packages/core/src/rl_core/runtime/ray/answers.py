"""Waiting for the answers of workers: all of them in order, or the run's first failure as soon as it is known."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rl_core.errors import DeadlineError, RlError
from rl_core.runtime.ray.failures import describe, is_collateral, root_cause

if TYPE_CHECKING:
    from rl_core.runtime.ray.future import RayFuture
    from rl_core.runtime.ray.health import Pending
    from rl_core.runtime.ray.link import RunLink

_SLICE_S = 0.25
"""A wait looks this often whether another worker has failed."""
_ROOT_CAUSE_S = 4.0
"""How long the first failure of a call waits for a better one: a peer's death shows in its collectives before it is told."""


def wait_for(futures: Sequence[RayFuture], link: RunLink, limit_s: float, key: str) -> list[Any]:
    """The results of ``futures`` in order.

    Args:
        futures: calls of one group.
        link: of the run.
        limit_s: seconds for all of them.
        key: what sets the limit, for the message.

    Raises:
        DeadlineError: a worker did not answer in time.
        WorkerError: a worker failed; this one, or any other of the run.
    """
    import ray  # noqa: PLC0415 - layers above choose a runtime without loading Ray

    refs = [future.ref for future in futures]
    ends = time.monotonic() + limit_s
    missing = refs
    values: dict[Any, Any] = {}
    sound: set[Any] = set()
    while missing:
        left_s = ends - time.monotonic()
        ready, missing = ray.wait(missing, num_returns=len(missing), timeout=max(min(_SLICE_S, left_s), 0.0))
        found, errors = read(ready)
        if errors:
            raise _failed(errors, link)
        values |= found
        if not missing:
            break
        if errors := _failed_elsewhere(link, set(refs), sound):
            raise _failed(errors, link)
        if link.health.failure is not None:
            raise link.health.told()
        if left_s <= 0:
            raise _too_late(missing, link, limit_s, key)
    link.health.returned(refs)
    return [values[ref] for ref in refs]


def _failed_elsewhere(link: RunLink, own: set[Any], sound: set[Any]) -> dict[Any, BaseException]:
    """Errors of the run's other calls: a peer that waits for the failed one would be waited for until its own deadline.

    Args:
        link: of the run.
        own: calls that are waited for anyway.
        sound: calls that have returned, looked at before; added to.
    """
    import ray  # noqa: PLC0415 - as above

    others = [ref for ref, _ in link.health.pending() if ref not in own and ref not in sound]
    if not others:
        return {}
    finished, _ = ray.wait(others, num_returns=len(others), timeout=0.0)
    found, errors = read(finished)
    sound |= found.keys()
    return errors


def read(refs: Sequence[Any]) -> tuple[dict[Any, Any], dict[Any, BaseException]]:
    """Of finished calls, reference -> result of those that returned, and reference -> error of those that failed."""
    import ray  # noqa: PLC0415 - as above

    try:
        return dict(zip(refs, ray.get(list(refs)), strict=True)), {}
    except ray.exceptions.RayError:
        values: dict[Any, Any] = {}
        errors: dict[Any, BaseException] = {}
        for ref in refs:
            try:
                values[ref] = ray.get(ref)
            except ray.exceptions.RayError as error:
                errors[ref] = error
        return values, errors


def _failed(errors: dict[Any, BaseException], link: RunLink) -> RlError:
    """The error to raise for failed calls: that of the worker that failed first, not of those it took along.

    The worker that failed first may be of another group, whose results these calls were to work on.
    """
    import ray  # noqa: PLC0415 - as above

    ends = time.monotonic() + _ROOT_CAUSE_S
    while _all_collateral(errors) and link.health.failure is None and time.monotonic() < ends:
        others = [ref for ref, _ in link.health.pending() if ref not in errors]
        if not others:
            break
        finished, _ = ray.wait(others, num_returns=len(others), timeout=0.0)
        _, found = read(finished)
        errors |= found
        if not found:
            time.sleep(0.05)
    if link.health.failure is not None:
        return link.health.told()
    calls: dict[Any, Pending] = {ref: call for ref, call in link.health.pending() if ref in errors}
    first = root_cause({ref: errors[ref] for ref in calls})
    failure = describe(
        calls[first],
        errors[first],
        last_lines=lambda: link.last_lines(calls[first].member),
        redact=link.health.redact,
    )
    if _all_collateral(errors) and (waits := link.waits()):
        failure = _extended(failure, waits)
    link.health.fail(failure)
    return link.health.told()


def _too_late(missing: Sequence[Any], link: RunLink, limit_s: float, key: str) -> RlError:
    late = [call for ref, call in link.health.pending() if ref in missing]
    text = f"{'; '.join(map(str, late))} did not finish within {limit_s:g} s ({key})"
    waits = link.waits()
    link.health.fail(DeadlineError(f"{text}\n{waits}" if waits else text))
    return link.health.told()


def _all_collateral(errors: Mapping[Any, BaseException]) -> bool:
    return all(map(is_collateral, errors.values()))


def _extended(failure: RlError, text: str) -> RlError:
    extended = type(failure)(f"{failure}\n{text}")
    extended.__cause__ = failure.__cause__
    return extended
