"""Workers of one process meet in memory.

All collectives of a group share one ``CollectiveHub``: when a worker fails, whoever waits anywhere in it is released.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_core.errors import DeadlineError, RlError, WorkerError
from rl_core.single_controller.base.collective import check_source, check_subgroup


class PeerFailedError(WorkerError):
    """This worker was well, but a peer failed.

    Attributes:
        hub_id: ``id`` of the hub of the two; an error may travel through the workers of other groups.
    """

    hub_id: int = 0


@dataclass
class _Round:
    """One operation of one collective, while its members arrive."""

    operation: Hashable
    members: Sequence[int]
    values: dict[int, Any] = field(default_factory=dict)
    taken: int = 0

    @property
    def present(self) -> list[int]:
        """Ranks in the group of those who arrived, in order of arrival."""
        return [self.members[peer] for peer in self.values]

    @property
    def missing(self) -> list[int]:
        """Ranks in the group of those who did not."""
        return [member for peer, member in enumerate(self.members) if peer not in self.values]


class CollectiveHub:
    """The meeting place of a group's workers."""

    def __init__(self, group: str, deadline_s: float) -> None:
        """No worker has met another yet.

        Args:
            group: name of the group, for messages.
            deadline_s: how long a member waits for the others unless it says otherwise.
        """
        self.group = group
        self.deadline_s = deadline_s
        self._changed = threading.Condition()
        self._rounds: dict[Hashable, _Round] = {}
        self._reason: str | None = None

    def world(self, rank: int, world_size: int) -> LocalCollective:
        """The collective of all workers, for ``rank``."""
        return LocalCollective(self, tuple(range(world_size)), rank, key="world")

    def abort(self, reason: str) -> None:
        """Release everyone who waits, now and later; the first reason stays."""
        with self._changed:
            self._reason = self._reason or reason
            self._changed.notify_all()

    def waits(self) -> dict[int, str]:
        """What each rank that waits here waits for, to explain a call that does not end."""
        with self._changed:
            return {
                rank: f"it waits in {_name(this.operation)} for ranks {this.missing}"
                for this in self._rounds.values()
                if this.missing
                for rank in this.present
            }

    def exchange(
        self,
        key: Hashable,
        members: Sequence[int],
        rank: int,
        operation: Hashable,
        value: Any,
        timeout_s: float | None,
    ) -> list[Any]:
        """Leave ``value`` and wait for those of all members; see ``Collective`` for the errors.

        Args:
            key: of this round; every member uses the same.
            members: ranks in the group, for messages.
            rank: position of the caller among ``members``.
            operation: what the caller does; all must do the same.
            value: the caller's.
            timeout_s: None waits for the hub's deadline.
        """
        deadline_s = self.deadline_s if timeout_s is None else timeout_s
        with self._changed:
            self._check_alive(f"rank {members[rank]} was released from {_name(operation)}")
            this = self._rounds.setdefault(key, _Round(operation, members))
            if this.operation != operation:
                raise self._failed(
                    WorkerError(
                        f"worker group {self.group!r}: rank {members[rank]} calls {_name(operation)} while ranks "
                        f"{this.present} are in {_name(this.operation)}; all members call "
                        "the same operations in the same order"
                    )
                )
            this.values[rank] = value
            if this.missing:
                self._changed.wait_for(lambda: not this.missing or self._reason, deadline_s)
            else:
                self._changed.notify_all()
            if this.missing:
                self._check_alive(f"rank {members[rank]} was released from {_name(operation)}")
                raise self._failed(
                    DeadlineError(
                        f"worker group {self.group!r}: rank {members[rank]} waited {deadline_s:g} s in "
                        f"{_name(operation)} for ranks {this.missing}; they are still busy, or never call it"
                    )
                )
            this.taken += 1
            if this.taken == len(members):
                del self._rounds[key]
            return [this.values[peer] for peer in range(len(members))]

    def check_alive(self, label: str) -> None:
        """Raise ``PeerFailedError`` if a worker failed, so that its peers do not go on; ``label`` names the caller."""
        with self._changed:
            self._check_alive(f"{label} was not begun")

    def _check_alive(self, consequence: str) -> None:
        if self._reason is not None:
            error = PeerFailedError(
                f"worker group {self.group!r}: {consequence}, because a peer failed: {self._reason}"
            )
            error.hub_id = id(self)
            raise error

    def _failed(self, error: RlError) -> RlError:
        """Release the others too: after an operation without all members nobody can go on."""
        self._reason = self._reason or str(error)
        self._changed.notify_all()
        return error


class LocalCollective:
    """A ``Collective`` of workers in one process. What arrives is the sender's object itself, not a copy."""

    def __init__(self, hub: CollectiveHub, members: tuple[int, ...], rank: int, key: Hashable) -> None:
        """Take a place among ``members``.

        Args:
            hub: where the members meet.
            members: their ranks in the group.
            rank: own position among ``members``.
            key: of this collective; the same for all members, and no other collective of the hub has it.
        """
        self._hub = hub
        self._members = members
        self._key = key
        self._num_rounds = 0
        self._num_subgroups: dict[tuple[int, ...], int] = {}
        self.rank = rank
        self.world_size = len(members)

    def all_gather_object(self, obj: Any, timeout_s: float | None = None) -> list[Any]:
        """Every member's ``obj``, in rank order; see ``Collective``."""
        return self._exchange(("all_gather_object",), obj, timeout_s)

    def broadcast_object(self, obj: Any, source: int = 0, timeout_s: float | None = None) -> Any:
        """The ``obj`` of rank ``source``; see ``Collective``."""
        check_source(source, self.world_size)
        value = obj if self.rank == source else None
        return self._exchange(("broadcast_object", source), value, timeout_s)[source]

    def barrier(self, timeout_s: float | None = None) -> None:
        """Wait until every member is here; see ``Collective``."""
        self._exchange(("barrier",), None, timeout_s)

    def subgroup(self, ranks: Sequence[int]) -> LocalCollective:
        """The collective of ``ranks``, called by exactly those; see ``Collective``."""
        members = tuple(ranks)
        check_subgroup(members, self.rank, self.world_size)
        number = self._num_subgroups.get(members, 0)
        self._num_subgroups[members] = number + 1
        return LocalCollective(
            self._hub,
            tuple(self._members[rank] for rank in members),
            members.index(self.rank),
            key=(self._key, members, number),
        )

    def _exchange(self, operation: Hashable, value: Any, timeout_s: float | None) -> list[Any]:
        key = (self._key, self._num_rounds)
        self._num_rounds += 1
        return self._hub.exchange(key, self._members, self.rank, operation, value, timeout_s)


def _name(operation: Any) -> str:
    name, *source = operation
    return f"{name} from rank {source[0]}" if source else str(name)
