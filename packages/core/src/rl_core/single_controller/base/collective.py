"""What a worker knows about its place: rank, device, and how to meet the other workers of its group."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rl_core.errors import ConfigError, ShapeError

ENVIRONMENT_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""The contract between a launcher and a worker process; the names are those of torchrun."""


class Collective(Protocol):
    """Exchange of Python objects between the workers of a group.

    Every member calls the same operations in the same order. An object that arrives may be the sender's own (workers
    of one process share memory): it is read, never written. When a member fails, or does not come in time, all others
    are released with an error.
    """

    @property
    def rank(self) -> int:
        """Own position, from 0."""

    @property
    def world_size(self) -> int:
        """Number of members."""

    def all_gather_object(self, obj: Any, timeout_s: float | None = None) -> list[Any]:
        """Every member's ``obj``, in rank order.

        Raises:
            DeadlineError: a member did not come within ``timeout_s`` (None: the group's own deadline).
            WorkerError: a member failed, or called another operation.
        """

    def broadcast_object(self, obj: Any, source: int = 0, timeout_s: float | None = None) -> Any:
        """The ``obj`` of rank ``source``; what the others pass is ignored. Raises as ``all_gather_object``."""

    def barrier(self, timeout_s: float | None = None) -> None:
        """Wait until every member is here. Raises as ``all_gather_object``."""

    def subgroup(self, ranks: Sequence[int]) -> Collective:
        """The collective of some members; called by exactly those, each with the same ``ranks``.

        Args:
            ranks: positions in this collective; their order gives the ranks of the subgroup.
        """


class SoloCollective:
    """The collective of a group of one."""

    rank = 0
    world_size = 1

    def all_gather_object(self, obj: Any, timeout_s: float | None = None) -> list[Any]:
        """``[obj]``."""
        return [obj]

    def broadcast_object(self, obj: Any, source: int = 0, timeout_s: float | None = None) -> Any:
        """``obj``."""
        check_source(source, 1)
        return obj

    def barrier(self, timeout_s: float | None = None) -> None:
        """Nobody to wait for."""

    def subgroup(self, ranks: Sequence[int]) -> SoloCollective:
        """Itself; ``ranks`` can only be ``[0]``."""
        check_subgroup(ranks, 0, 1)
        return self


def check_source(source: int, world_size: int) -> None:
    """Raise ``ShapeError`` unless ``source`` is a rank of a collective of ``world_size``."""
    if not 0 <= source < world_size:
        msg = f"broadcast_object from rank {source} was asked in a collective of {world_size} members"
        raise ShapeError(msg)


def check_subgroup(ranks: Sequence[int], rank: int, world_size: int) -> None:
    """Raise ``ShapeError`` unless ``ranks`` are distinct members, ``rank`` among them."""
    if len(set(ranks)) != len(ranks) or any(not 0 <= member < world_size for member in ranks):
        msg = f"a subgroup needs distinct ranks below {world_size}; got {list(ranks)}"
        raise ShapeError(msg)
    if rank not in ranks:
        msg = f"rank {rank} asked for the subgroup {list(ranks)}, which it is not in; only members call subgroup"
        raise ShapeError(msg)


@dataclass(frozen=True, slots=True)
class DispatchInfo:
    """A worker's part in splitting a batch over one mesh.

    Attributes:
        dp_rank: which piece of the batch this worker gets; workers that compute together share one.
        dp_size: number of pieces.
        is_collect: whether this worker's output is the output of its piece; exactly one worker a piece.
    """

    dp_rank: int
    dp_size: int
    is_collect: bool


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """Where a worker stands; made by the runtime, given to every worker's constructor.

    Attributes:
        rank: position in the group, from 0.
        world_size: workers in the group.
        local_rank: position among the group's workers on this node, from 0.
        local_world_size: workers of the group on this node.
        device: as torch spells it: "cpu", "cuda:0".
        collective: meets the other workers of the group.
        master_addr: host of rank 0, for process groups that workers open themselves.
        master_port: free port on that host; 0 when the runtime reserved none.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    device: str
    collective: Collective
    master_addr: str = "127.0.0.1"
    master_port: int = 0

    def __post_init__(self) -> None:
        _check_position("rank", self.rank, "world_size", self.world_size)
        _check_position("local_rank", self.local_rank, "local_world_size", self.local_world_size)
        if self.local_world_size > self.world_size:
            msg = f"local_world_size ({self.local_world_size}) is larger than world_size ({self.world_size})"
            raise ConfigError(msg)

    @classmethod
    def from_env(
        cls,
        *,
        device: str = "cpu",
        collective: Collective | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> WorkerContext:
        """Read the launcher's variables (``ENVIRONMENT_VARIABLES``).

        Args:
            device: as in the attribute.
            collective: opened by the caller; may be left out for a group of one.
            environ: instead of ``os.environ``.

        Raises:
            ConfigError: a variable is missing, is no number, or contradicts another; or several workers have no
                collective.
        """
        source = os.environ if environ is None else environ
        missing = [name for name in ENVIRONMENT_VARIABLES if not source.get(name)]
        if missing:
            msg = (
                f"a worker process needs {', '.join(ENVIRONMENT_VARIABLES)} in its environment; missing: "
                f"{', '.join(missing)}. A runtime or torchrun sets them."
            )
            raise ConfigError(msg)
        world_size = _number(source, "WORLD_SIZE")
        if collective is None:
            if world_size != 1:
                msg = f"WORLD_SIZE is {world_size}, but no collective was given; open one and pass it"
                raise ConfigError(msg)
            collective = SoloCollective()
        return cls(
            rank=_number(source, "RANK"),
            world_size=world_size,
            local_rank=_number(source, "LOCAL_RANK"),
            local_world_size=_number(source, "LOCAL_WORLD_SIZE"),
            device=device,
            collective=collective,
            master_addr=source["MASTER_ADDR"],
            master_port=_number(source, "MASTER_PORT"),
        )

    def to_env(self) -> dict[str, str]:
        """The variables from which ``from_env`` reads this context; device and collective are not among them."""
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": str(self.master_port),
        }


def _number(environ: Mapping[str, str], name: str) -> int:
    try:
        return int(environ[name])
    except ValueError as error:
        msg = f"environment variable {name} must be a whole number; it is {environ[name]!r}"
        raise ConfigError(msg) from error


def _check_position(name: str, value: int, size_name: str, size: int) -> None:
    if not 0 <= value < size:
        msg = f"{name} ({value}) must be at least 0 and below {size_name} ({size})"
        raise ConfigError(msg)
