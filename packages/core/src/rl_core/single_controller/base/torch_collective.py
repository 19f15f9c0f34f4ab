"""A ``Collective`` of workers that are processes, on one machine or many, over torch's gloo transport.

Objects travel pickled, as in torch itself, between the members of a group who already run the same program for the same
user; nothing from outside is read. Every operation first exchanges a short header, so that members which call different
operations find out instead of misreading each other's bytes.

The connections are the collective's own: torch's default process group may be anything (NCCL alone, for example), and a
deadline that passes here leaves it usable. Subgroups are made by their members alone, whatever others have made before,
which ``torch.distributed.new_group`` cannot do: its names count all groups of a process.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rl_core.errors import DeadlineError, WorkerError
from rl_core.single_controller.base.collective import SoloCollective, check_source, check_subgroup

if TYPE_CHECKING:
    import torch

    from rl_core.single_controller.base.collective import Collective

_OPERATIONS = ("all_gather_object", "broadcast_object", "barrier")
_LATE = ("timed out", "timeout")
_NOTES_S = 5.0
"""How long members' notes are waited for when an error message is written."""


class TorchCollective:
    """Members that find each other in a store.

    A member that does not come is named. A member whose process ends releases the others at once; one that fails and
    stays, at the deadline. After a failed operation the collective cannot be used any more.
    """

    def __init__(self, store: Any, rank: int, world_size: int, *, deadline_s: float, name: str = "workers") -> None:
        """Connect to the other members; each of them does the same.

        Args:
            store: a torch.distributed ``Store`` that every member reaches. Nobody else has used ``name`` in it.
            rank: own position, from 0.
            world_size: number of members.
            deadline_s: how long a member waits for the others unless it says otherwise.
            name: of the worker group; the same for all members.

        Raises:
            DeadlineError: a member did not come in time.
            WorkerError: no connection.
        """
        # torch is imported where it is used: this package's light modules import its neighbours.
        import torch.distributed as dist  # noqa: PLC0415

        api: Any = dist  # its stubs leave out what is built in
        self.name = name
        self.rank = rank
        self.world_size = world_size
        self._store = api.PrefixStore(f"rl_core.collective/{name}", store)
        self._base_store = store
        self._deadline_s = deadline_s
        self._num_calls = 0
        self._num_subgroups: dict[tuple[int, ...], int] = {}
        self._failure: str | None = None
        self._leave_note("connecting")
        try:
            self._group = api.ProcessGroupGloo(
                api.PrefixStore("gloo", self._store), rank, world_size, timedelta(seconds=deadline_s)
            )
        except RuntimeError as error:
            raise self._explained(error, "connecting", deadline_s) from error

    @classmethod
    def of_default_group(cls, *, deadline_s: float, name: str = "workers") -> TorchCollective:
        """The members of torch's default process group, which must be open."""
        import torch.distributed as dist  # noqa: PLC0415 - see __init__

        store = dist.distributed_c10d._get_default_store()
        return cls(store, dist.get_rank(), dist.get_world_size(), deadline_s=deadline_s, name=name)

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

    def subgroup(self, ranks: Sequence[int]) -> Collective:
        """The collective of ``ranks``, called by exactly those; see ``Collective``. A member alone needs no transport."""
        members = tuple(ranks)
        check_subgroup(members, self.rank, self.world_size)
        if len(members) == 1:
            return SoloCollective()
        number = self._num_subgroups.get(members, 0)
        self._num_subgroups[members] = number + 1
        name = f"{self.name}/{'-'.join(map(str, members))}#{number}"
        return TorchCollective(
            self._base_store, members.index(self.rank), len(members), deadline_s=self._deadline_s, name=name
        )

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

        found = [torch.empty_like(tensor) for _ in range(self.world_size)]
        try:
            work = self._group.allgather([found], [tensor])
            work.wait(timedelta(seconds=max(ends - time.monotonic(), 0.001)))
        except RuntimeError as error:
            raise self._explained(error, operation, deadline_s) from error
        return found

    def _check_alive(self, operation: str) -> None:
        if self._failure is not None:
            msg = f"worker group {self.name!r}: rank {self.rank} cannot call {operation} any more: {self._failure}"
            raise WorkerError(msg)

    def _explained(self, error: RuntimeError, operation: str, deadline_s: float) -> DeadlineError | WorkerError:
        """Torch's error in our terms; this collective is of no use after it."""
        place = f"worker group {self.name!r}: rank {self.rank} waited in {operation}"
        if any(word in str(error).lower() for word in _LATE):
            msg = f"{place} {deadline_s:g} s for ranks {self._late_members()}; they are still busy, or never call it"
            return self._failed(DeadlineError(msg))
        return self._failed(WorkerError(f"{place}, because a peer failed or left: {str(error).splitlines()[0]}"))

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
        self._store.set(f"note/{self.rank}", f"{self._num_calls}:{operation}")

    def _late_members(self) -> list[int]:
        """Ranks that have not reached this call; all others when nobody can tell."""
        try:
            self._store.set_timeout(timedelta(seconds=_NOTES_S))
            return [rank for rank in range(self.world_size) if self._calls_of(rank) < self._num_calls]
        except RuntimeError:
            # The store lives with one of the members, which may be the one that is gone.
            return [rank for rank in range(self.world_size) if rank != self.rank]

    def _calls_of(self, rank: int) -> int:
        key = f"note/{rank}"
        return int(self._store.get(key).decode().partition(":")[0]) if self._store.check([key]) else -1
