"""The result of a call on a Ray worker. It travels: another worker that gets it as an argument waits for it there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rl_core.errors import DeadlineError
from rl_core.runtime.ray.host import RemoteFailure
from rl_core.single_controller.base.future import WorkerFuture

Waiter = Callable[["RayFuture", "float | None"], Any]


class RayFuture(WorkerFuture):
    """Wraps an object reference."""

    def __init__(self, ref: Any, label: str, deadline_s: float, wait: Waiter | None = None) -> None:
        """A call that was made.

        Args:
            ref: Ray's reference of the result.
            label: what is waited for, for messages.
            deadline_s: how long ``result`` waits unless it is told otherwise.
            wait: how the process that made the call waits, with its knowledge of the workers; it stays behind when the
                future travels.
        """
        self.ref = ref
        self.label = label
        self._deadline_s = deadline_s
        self._wait = wait

    def __reduce__(self) -> tuple[Any, ...]:
        return RayFuture, (self.ref, self.label, self._deadline_s)

    def result(self, timeout: float | None = None) -> Any:
        """See ``WorkerFuture``."""
        if self._wait is not None:
            return self._wait(self, timeout)
        import ray  # noqa: PLC0415 - a future is unpickled in processes that have Ray running already

        limit_s = self._deadline_s if timeout is None else timeout
        try:
            return ray.get(self.ref, timeout=limit_s)
        except ray.exceptions.GetTimeoutError as error:
            msg = f"{self.label} did not finish within {limit_s:g} s"
            raise DeadlineError(msg) from error
        except ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, RemoteFailure) else error from None

    def done(self) -> bool:
        """See ``WorkerFuture``."""
        import ray  # noqa: PLC0415 - as above

        return bool(ray.wait([self.ref], timeout=0)[0])
