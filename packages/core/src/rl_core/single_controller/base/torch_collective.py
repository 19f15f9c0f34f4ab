"""A ``Collective`` over a torch.distributed process group: workers that are processes, on one machine or many.

Objects travel pickled, as in torch itself, between the members of a group who already run the same program for the same
user; nothing from outside is read. Every operation first exchanges a short header, so that members which call different
operations find out instead of misreading each other's bytes.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rl_core.errors import ConfigError, DeadlineError, WorkerError
from rl_core.single_controller.base.collective import check_source, check_subgroup

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist

_OPERATIONS = ("all_gather_object", "broadcast_object", "barrier")
_LATE = ("timed out", "timeout")
_POLL_S = 5.0
"""How long a late member's notes are waited for when an error message is written."""


class TorchCollective:
    """The members of a process group that can move CPU tensors (gloo).

    A member that does not come is named. A member whose process ends, or which closes the group, releases the others at
    once; one that fails and stays, at the deadline. After a failed operation the collective cannot be used any more.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        *,
        deadline_s: float,
        name: str = "workers",
        order: Sequence[int] | None = None,
    ) -> None:
        """Meet the members of an open process group.

        Args:
            group: None is the default group.
            deadline_s: how long a member waits for the others unless it says otherwise.
            name: of the worker group, for messages.
            order: ranks within ``group`` in the order in which this collective numbers them; None keeps theirs.

        Raises:
            ConfigError: the group cannot move objects.
        """
        # torch is imported where it is used: this package's light modules import its neighbours.
        import torch.distributed as dist  # noqa: PLC0415

        backends = str(dist.distributed_c10d.get_backend_config(group))
        if "gloo" not in backends:
            msg = f"worker group {name!r} exchanges objects by the CPU, but its process group has only {backends!r}; add gloo"
            raise ConfigError(msg)
        self.name = name
        self.world_size = dist.get_world_size(group)
        self._group = group
        self._deadline_s = deadline_s
        self._order = tuple(range(self.world_size)) if order is None else tuple(order)
        self.rank = self._order.index(dist.get_rank(group))
        self._num_calls = 0
        self._failure: str | None = None

    def all_gather_object(self, obj: Any, timeout_s: float | None = None) -> list[Any]:
        """Every member's ``obj``, in rank order; see ``Collective``."""
        payloads = self._exchange("all_gather_object", -1, pickle.dumps(obj), timeout_s)
        return [pickle.loads(payload) for payload in payloads]

    def broadcast_object(self, obj: Any, source: int = 0, timeout_s: float | None = None) -> Any:
        """The ``obj`` of rank ``source``; see ``Collective``."""
        check_source(source, self.world_size)
        payload = pickle.dumps(obj) if self.rank == source else b""
        return pickle.loads(self._exchange("broadcast_object", source, payload, timeout_s)[source])

    def barrier(self, timeout_s: float | None = None) -> None:
        """Wait until every member is here; see ``Collective``."""
        self._exchange("barrier", -1, b"", timeout_s)

    def subgroup(self, ranks: Sequence[int]) -> TorchCollective:
        """The collective of ``ranks``, called by exactly those; see ``Collective``."""
        import torch.distributed as dist  # noqa: PLC0415 - see __init__

        members = tuple(ranks)
        check_subgroup(members, self.rank, self.world_size)
        own = dist.group.WORLD if self._group is None else self._group
        all_ranks = dist.get_process_group_ranks(own)
        global_ranks = [all_ranks[self._order[rank]] for rank in members]
        group = dist.new_group(
            global_ranks,
            backend="gloo",
            timeout=timedelta(seconds=self._deadline_s),
            use_local_synchronization=True,
        )
        # torch numbers the members of a new group by their global ranks, whatever order they are given in.
        by_torch = sorted(global_ranks)
        name = f"{self.name} subgroup {list(members)}"
        order = [by_torch.index(rank) for rank in global_ranks]
        return TorchCollective(group, deadline_s=self._deadline_s, name=name, order=order)

    def _exchange(self, operation: str, source: int, payload: bytes, timeout_s: float | None) -> list[bytes]:
        """Every member's ``payload`` in rank order; those that are empty are not sent."""
        import torch  # noqa: PLC0415 - see __init__

        self._check_alive(operation)
        deadline_s = self._deadline_s if timeout_s is None else timeout_s
        ends = time.monotonic() + deadline_s
        self._num_calls += 1
        self._leave_note(operation)
        header = torch.tensor([_OPERATIONS.index(operation), source, self._num_calls, len(payload)])
        headers = [row.tolist() for row in self._all_gather(header, operation, ends, deadline_s)]
        if any(row[:3] != headers[0][:3] for row in headers):
            raise self._failed(WorkerError(self._mismatch(headers)))
        sizes = [row[3] for row in headers]
        if not max(sizes):
            return [b""] * self.world_size
        own = torch.zeros(max(sizes), dtype=torch.uint8)
        if payload:
            own[: len(payload)] = torch.frombuffer(bytearray(payload), dtype=torch.uint8)
        parts = self._all_gather(own, operation, ends, deadline_s)
        return [part[:size].numpy().tobytes() for part, size in zip(parts, sizes, strict=True)]

    def _all_gather(self, tensor: torch.Tensor, operation: str, ends: float, deadline_s: float) -> list[torch.Tensor]:
        import torch  # noqa: PLC0415 - see __init__
        import torch.distributed as dist  # noqa: PLC0415 - see __init__

        found = [torch.empty_like(tensor) for _ in range(self.world_size)]
        try:
            work = dist.all_gather(found, tensor, group=self._group, async_op=True)
            work.wait(timedelta(seconds=max(ends - time.monotonic(), 0.001)))
        except RuntimeError as error:
            place = f"worker group {self.name!r}: rank {self.rank} waited in {operation}"
            if any(word in str(error).lower() for word in _LATE):
                late = self._late_members()
                msg = f"{place} {deadline_s:g} s for ranks {late}; they are still busy, or never call it"
                raise self._failed(DeadlineError(msg)) from error
            msg = f"{place}, because a peer failed or left: {str(error).splitlines()[0]}"
            raise self._failed(WorkerError(msg)) from error
        return [found[position] for position in self._order]

    def _check_alive(self, operation: str) -> None:
        if self._failure is not None:
            msg = f"worker group {self.name!r}: rank {self.rank} cannot call {operation} any more: {self._failure}"
            raise WorkerError(msg)

    def _failed(self, error: DeadlineError | WorkerError) -> DeadlineError | WorkerError:
        self._failure = self._failure or str(error)
        return error

    def _mismatch(self, headers: Sequence[Sequence[int]]) -> str:
        calls = [
            f"rank {rank} {_OPERATIONS[code]}" + (f" from rank {source}" if source >= 0 else "") + f" (call {number})"
            for rank, (code, source, number, _) in enumerate(headers)
        ]
        return (
            f"worker group {self.name!r}: members call different operations: {', '.join(calls)}; all members call the same "
            "operations in the same order"
        )

    def _leave_note(self, operation: str) -> None:
        """Write down where this member is, so that a peer which waits in vain can say for whom."""
        self._store().set(self._note(self.rank), f"{self._num_calls}:{operation}")

    def _late_members(self) -> list[int]:
        """Ranks that have not reached this call; all others when nobody can tell."""
        store = self._store()
        try:
            store.set_timeout(timedelta(seconds=_POLL_S))
            return [
                rank
                for rank in range(self.world_size)
                if not store.check([self._note(rank)])
                or int(store.get(self._note(rank)).decode().partition(":")[0]) < self._num_calls
            ]
        except RuntimeError:
            # The store lives with one of the members, which may be the one that is gone.
            return [rank for rank in range(self.world_size) if rank != self.rank]

    def _note(self, rank: int) -> str:
        import torch.distributed as dist  # noqa: PLC0415 - see __init__

        own = dist.group.WORLD if self._group is None else self._group
        return f"rl_core.collective/{getattr(own, 'group_name', 'default')}/{self._order[rank]}"

    def _store(self) -> Any:
        import torch.distributed as dist  # noqa: PLC0415 - see __init__

        return dist.distributed_c10d._get_default_store()
