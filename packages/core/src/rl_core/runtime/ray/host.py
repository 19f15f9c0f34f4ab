"""The Ray actor around one worker: its place, its collective, its calls.

This module loads nothing heavy: the environment that the run wants (threads, plugins, secrets) is set before torch is
imported, and the worker's class arrives pickled and is opened after that.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rl_core.runtime.ray.activity import Activity, LogFile
from rl_core.runtime.ray.heartbeat import LAST_BEAT_S, Pulse
from rl_core.runtime.ray.kin import lead

if TYPE_CHECKING:
    from rl_core.single_controller.base.call import Call
    from rl_core.single_controller.base.progress import Progress


class RemoteFailure(Exception):
    """What a worker raised, in a form that every process can read.

    Attributes:
        type_name: class of the exception.
        message: its text.
        trace: its traceback.
        is_expected: whether it is one of this project's errors, whose text says all.
        is_collateral: whether it happened because another worker failed or did not come.
    """

    def __init__(self, type_name: str, message: str, trace: str, is_expected: bool, is_collateral: bool) -> None:
        super().__init__(type_name, message, trace, is_expected, is_collateral)
        self.type_name = type_name
        self.message = message
        self.trace = trace
        self.is_expected = is_expected
        self.is_collateral = is_collateral

    def __str__(self) -> str:
        return f"{self.type_name}: {self.message}"

    @classmethod
    def of(cls, error: BaseException) -> RemoteFailure:
        """The failure that stands for ``error``."""
        from rl_core.errors import RlError  # noqa: PLC0415 - see the module

        trace = "".join(traceback.format_exception(error))
        name = type(error).__name__
        return cls(name, str(error), trace, isinstance(error, RlError), _is_collateral(error))

    def passed_on(self) -> RemoteFailure:
        """The same as the failure of a worker that was to work on this one's result."""
        return RemoteFailure(self.type_name, self.message, self.trace, self.is_expected, is_collateral=True)

    def without(self, redact: Callable[[str], str]) -> RemoteFailure:
        """The same with secrets taken out."""
        message, trace = redact(self.message), redact(self.trace)
        return RemoteFailure(self.type_name, message, trace, self.is_expected, self.is_collateral)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an actor ended up.

    Attributes:
        node_id: Ray's id of the node.
        node_ip: its address.
        pid: process id there.
        born: when the process started, in seconds since the epoch; with the id it names one process for ever.
        device: as torch spells it in that process: "cpu", "cuda:2".
        world_size: workers of the group, once it is built; 0 before.
        plugins: the plugin table of the process.
        files: where it prints, and where its own output begins there.
    """

    node_id: str
    node_ip: str
    pid: int
    born: float
    device: str
    world_size: int
    plugins: tuple[dict[str, str], ...]
    files: tuple[LogFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Seat:
    """A worker's place in its group, decided once every actor is placed.

    Attributes:
        rank: position in the group.
        world_size: workers in the group.
        local_rank: position among the group's workers on its node.
        local_world_size: workers of the group on its node.
        master_addr: address of rank 0.
        master_port: free port there, for process groups that workers open.
        store_port: where rank 0's store listens, for the group's collective.
        device: of the worker, as its process said where it is.
        collective_deadline_s: how long a collective operation waits.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    master_addr: str
    master_port: int
    store_port: int
    device: str
    collective_deadline_s: float


class WorkerHost:
    """One worker in a process of its own; calls run one at a time, in the order they were submitted."""

    def __init__(
        self,
        group: str,
        environment: Mapping[str, str],
        directory: str | None = None,
        import_path: Sequence[str] = (),
    ) -> None:
        """Take over the run's environment.

        Args:
            group: name of the worker group.
            environment: variables of the run.
            directory: the run's working directory, so that relative paths mean here what they mean to the driver. A node
                that has no such directory keeps Ray's; None keeps it everywhere.
            import_path: looked through for modules after this process's own path.
        """
        self._born = lead()
        os.environ.update(environment)
        if directory is not None and os.path.isdir(directory):
            os.chdir(directory)
        sys.path += [entry for entry in import_path if entry not in sys.path]
        self._group = group
        self._worker: Any = None
        self._store: Any = None
        self._loop = asyncio.Runner()
        self._activity = Activity()
        self._files = self._activity.files
        self._pulse: Pulse | None = None

    def place(self, on_cuda: bool) -> Place:
        """Where this actor is.

        Args:
            on_cuda: whether the worker will compute on a CUDA device.

        Raises:
            RemoteFailure: the device that Ray assigned is not visible to this process, or a plugin is broken.
        """
        try:
            return self._place(on_cuda)
        except Exception as error:
            raise RemoteFailure.of(error) from None

    def _place(self, on_cuda: bool) -> Place:
        import ray  # noqa: PLC0415 - see the module

        from rl_core.plugins import get_registry  # noqa: PLC0415

        context = ray.get_runtime_context()
        return Place(
            node_id=context.get_node_id(),
            node_ip=ray.util.get_node_ip_address(),
            pid=os.getpid(),
            born=self._born,
            device=_device(context.get_accelerator_ids().get("GPU", [])) if on_cuda else "cpu",
            world_size=0 if self._worker is None else self._worker.world_size,
            plugins=tuple(get_registry().plugin_table()),
            files=self._files,
        )

    def open_store(self, timeout_s: float) -> tuple[int, int]:
        """On rank 0: open the store where the group meets; its port, and another free one."""
        from datetime import timedelta  # noqa: PLC0415

        import torch.distributed as dist  # noqa: PLC0415 - see the module

        api: Any = dist  # its stubs leave out what is built in
        self._store = api.TCPStore(
            host_name="0.0.0.0",
            port=0,
            is_master=True,
            wait_for_workers=False,
            timeout=timedelta(seconds=timeout_s),
        )
        with socket.socket() as probe:
            probe.bind(("", 0))
            return self._store.port, int(probe.getsockname()[1])

    def build(self, seat: Seat, pickled: bytes, board: Any, beat_s: float) -> None:
        """Meet the group and construct the worker.

        Args:
            seat: of this worker.
            pickled: a ``ClassWithInitArgs``.
            board: actor that takes heartbeats; None for none.
            beat_s: seconds between them.
        """
        if board is not None:
            self._pulse = Pulse(f"{self._group}/{seat.rank}", board, self._activity, beat_s)
            self._pulse.start()
        with self._activity.doing("__init__", None):
            try:
                self._worker = _construct(self._group, seat, pickled, self._store)
            except Exception as error:
                raise RemoteFailure.of(error) from None

    def call(self, method: str, call: Call, materialize: bool, timeout_s: float, place: Progress | None) -> Any:
        """Run a method of the worker; see ``invoke``.

        Raises:
            RemoteFailure: it raised.
        """
        from rl_core.runtime.ray.payload import opened  # noqa: PLC0415 - see the module
        from rl_core.single_controller.base.call import invoke  # noqa: PLC0415

        with self._activity.doing(method, place):
            try:
                output = invoke(self._worker, method, opened(call), materialize=materialize, timeout_s=timeout_s)
                return self._loop.run(_within(output, method, timeout_s)) if inspect.isawaitable(output) else output
            except RemoteFailure as failure:  # of another worker, whose result was an argument
                raise failure.passed_on() from None
            except Exception as error:
                raise RemoteFailure.of(error) from None

    def ping(self) -> None:
        """Answer: what a watcher asks when no heartbeat comes."""

    def close(self) -> None:
        """Close the worker. What it printed until then is sent off."""
        try:
            if self._worker is not None:
                self._worker.close()
        except Exception as error:
            raise RemoteFailure.of(error) from None
        finally:
            if self._pulse is not None:
                import ray  # noqa: PLC0415 - see the module

                ray.wait([self._pulse.stop()], timeout=LAST_BEAT_S)


async def _within(awaitable: Any, method: str, timeout_s: float) -> Any:
    from rl_core.errors import DeadlineError  # noqa: PLC0415 - see the module

    try:
        async with asyncio.timeout(timeout_s) as limit:
            return await awaitable
    except TimeoutError as error:
        if not limit.expired():
            raise  # of the method itself
        msg = f"{method} did not finish within {timeout_s:g} s"
        raise DeadlineError(msg) from error


def _construct(group: str, seat: Seat, pickled: bytes, own_store: Any) -> Any:
    from ray import cloudpickle  # noqa: PLC0415 - see the module

    from rl_core.single_controller.base.collective import WorkerContext  # noqa: PLC0415

    if seat.local_world_size < seat.world_size:
        _meet_at_the_node_address()
    context = WorkerContext(
        rank=seat.rank,
        world_size=seat.world_size,
        local_rank=seat.local_rank,
        local_world_size=seat.local_world_size,
        device=seat.device,
        collective=_collective(group, seat, own_store),
        master_addr=seat.master_addr,
        master_port=seat.master_port,
    )
    os.environ.update(context.to_env())
    _make_current(seat.device)
    return cloudpickle.loads(pickled)(context)


def _meet_at_the_node_address() -> None:
    """Let gloo listen at the address that the cluster knows this node by.

    By itself it takes what the host's own name resolves to, which on many systems is a loopback address.
    """
    import psutil  # noqa: PLC0415 - see the module
    import ray  # noqa: PLC0415

    address = ray.util.get_node_ip_address()
    for interface, addresses in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in addresses):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)


def _device(assigned: Sequence[int | str]) -> str:
    """The device that Ray assigned to this process, under the index that torch knows it by here."""
    from rl_core.single_controller.base.device import physical_device  # noqa: PLC0415 - see the module

    return f"cuda:{physical_device(os.environ.get('CUDA_VISIBLE_DEVICES'), 0, assigned).logical}"


def _make_current(device: str) -> None:
    """Let code that says just "cuda" use the worker's device; an engine that finds no CUDA says so itself."""
    if device == "cpu":
        return
    import torch  # noqa: PLC0415 - see the module

    if torch.cuda.is_available():
        torch.cuda.set_device(device)


def _collective(group: str, seat: Seat, own_store: Any) -> Any:
    from rl_core.single_controller.base.collective import SoloCollective  # noqa: PLC0415 - see the module

    if seat.world_size == 1:
        return SoloCollective()
    from datetime import timedelta  # noqa: PLC0415

    import torch.distributed as dist  # noqa: PLC0415

    from rl_core.single_controller.base.torch_collective import TorchCollective  # noqa: PLC0415

    api: Any = dist  # its stubs leave out what is built in
    store = own_store or api.TCPStore(
        host_name=seat.master_addr,
        port=seat.store_port,
        is_master=False,
        timeout=timedelta(seconds=seat.collective_deadline_s),
    )
    return TorchCollective(store, seat.rank, seat.world_size, deadline_s=seat.collective_deadline_s, name=group)


_COLLATERAL = (
    "because a peer failed or left",
    "Connection closed by peer",
    "Connection reset by peer",
    "Connection was likely closed",
    "Broken pipe",
    "Timed out waiting",
)
"""What gloo and torch's store say when a member is gone or does not come."""


def _is_collateral(error: BaseException) -> bool:
    """Whether ``error`` is what a worker sees when another one is gone, or does not come."""
    import ray  # noqa: PLC0415 - see the module

    from rl_core.errors import DeadlineError  # noqa: PLC0415

    kinds: tuple[type[BaseException], ...] = (DeadlineError, ray.exceptions.RayError)
    if "torch" in sys.modules:
        kinds += (sys.modules["torch"].distributed.DistError,)
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, kinds) or any(text in str(seen) for text in _COLLATERAL):
            return True
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return False
