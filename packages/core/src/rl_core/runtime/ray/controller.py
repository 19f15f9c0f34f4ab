"""The controller as an actor of a cluster that was joined: it lives there, not on the shell that started it."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rl_core.config.secrets import REDACTED
from rl_core.errors import RlError, WorkerError
from rl_core.runtime.ray.activity import Activity
from rl_core.runtime.ray.cluster import Cluster
from rl_core.runtime.ray.failures import exit_reason
from rl_core.runtime.ray.heartbeat import LAST_BEAT_S, Board, Pulse
from rl_core.runtime.ray.watchdog import redactor

if TYPE_CHECKING:
    from rl_core.config.ray import RayConfig

T = TypeVar("T")

_POLL_S = 0.3
_INTERRUPT_S = 30.0
"""Seconds the controller gets, after Ctrl-C, to end its workers."""


class ControllerHost:
    """Ray actor that runs the controller; what it prints goes to a board."""

    def __init__(self, environment: Mapping[str, str], folder: str, command: Sequence[str], board: Any) -> None:
        """Take over the launcher's place.

        Args:
            environment: variables of the run.
            folder: the launcher's working directory, used where it exists: relative paths mean the same here.
            command: the launcher's command line, for the run folder.
            board: takes what is printed.
        """
        sys.argv = list(command)
        os.environ.update(environment)
        if os.path.isdir(folder):
            os.chdir(folder)
        self._pulse = Pulse("controller", board, Activity(), _POLL_S)
        self._thread: int | None = None

    def run(self, pickled: bytes) -> Any:
        """Call the pickled function; its result, or the expected error that ended it."""
        import ray  # noqa: PLC0415 - the environment is set first
        from ray import cloudpickle  # noqa: PLC0415

        self._pulse.start()
        self._thread = threading.get_ident()
        try:
            return cloudpickle.loads(pickled)()
        except RlError as error:
            return error
        finally:
            self._thread = None
            sys.stdout.flush()
            sys.stderr.flush()
            ray.wait([self._pulse.stop()], timeout=LAST_BEAT_S)

    def interrupt(self) -> None:
        """Raise ``KeyboardInterrupt`` where ``run`` is."""
        if self._thread is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread), ctypes.py_object(KeyboardInterrupt)
            )


def run_on_cluster(config: RayConfig, run: Callable[[], T]) -> T:
    """Call ``run`` in an actor of the cluster, print what it prints, and pass its result or error on.

    Args:
        config: ``ray_kwargs``; names the cluster.
        run: picklable.

    Raises:
        ConfigError: the cluster cannot be reached.
        WorkerError: the controller's process is gone.
        RlError: what ended the run.
    """
    import ray  # noqa: PLC0415 - layers above choose a runtime without loading Ray
    from ray import cloudpickle  # noqa: PLC0415
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415

    cluster = Cluster(config, num_workers=0)
    redact = redactor(config.ray_init.runtime_env.get("env_vars", {}), REDACTED)
    try:
        board = ray.remote(num_cpus=0, max_restarts=0)(Board).remote()
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        host = (
            ray.remote(num_cpus=0, max_restarts=0, max_concurrency=2)(ControllerHost)
            .options(scheduling_strategy=here)
            .remote(cluster.worker_environment(on_cuda=True), os.getcwd(), sys.argv, board)
        )
        ref = host.run.remote(cloudpickle.dumps(run))
        try:
            _follow(ref, board, redact)
        except KeyboardInterrupt:
            host.interrupt.remote()
            ray.wait([ref], timeout=_INTERRUPT_S)
            _print_new(board, redact)
            ray.kill(host)
            raise
        try:
            result = ray.get(ref)
        except ray.exceptions.RayActorError as error:
            msg = f"the controller's process is gone. {exit_reason(error)}"
            raise WorkerError(msg) from None
        if isinstance(result, RlError):
            raise result
        return cast("T", result)
    finally:
        cluster.close()


def _follow(ref: Any, board: Any, redact: Callable[[str], str]) -> None:
    import ray  # noqa: PLC0415 - as above

    while True:
        ready, _ = ray.wait([ref], timeout=_POLL_S)
        _print_new(board, redact)
        if ready:
            return


def _print_new(board: Any, redact: Callable[[str], str]) -> None:
    import ray  # noqa: PLC0415 - as above

    _, logs = ray.get(board.read.remote())
    for text in logs.values():
        sys.stdout.write(redact(text))
    sys.stdout.flush()
