"""The sampler contract: the first line of the loop.

A sampler turns prompts into finished responses. It decides when prompts are submitted, how long it waits, and what
happens to a group of which some responses never come. Other schedules (asynchronous, refilling, dynamic sampling) are
other samplers, never other trainers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_dataproto import DataProto


class GroupStatus(StrEnum):
    """Where the responses of one prompt are."""

    PENDING = "pending"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(slots=True)
class PromptGroup:
    """All responses to one prompt.

    Attributes:
        uid: names the group.
        size: responses asked for.
        status: ``finished`` when at least one response came, ``failed`` when none did.
        num_failed: responses that never came; the group trains with the others.
        errors: why, one text for each failed response.
    """

    uid: str
    size: int
    status: GroupStatus = GroupStatus.PENDING
    num_failed: int = 0
    errors: tuple[str, ...] = ()


class Sampler(ABC):
    """Yields one batch of finished responses for each step of the loop. ``Stateful``."""

    @abstractmethod
    def next(self) -> DataProto:
        """The next batch: responses of ``data.train_batch_size`` prompts, rows of one prompt side by side.

        Groups may be uneven: a response that failed is missing. ``meta_info["metrics"]`` counts what failed.

        Raises:
            StopIteration: the data is used up for the configured epochs.
            MissingRolloutError: more responses failed than ``trainer.max_failed_rollout_fraction`` allows.
        """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Position in the data and every counter that draws depend on."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state``."""
