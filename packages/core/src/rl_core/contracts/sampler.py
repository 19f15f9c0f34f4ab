"""The sampler contract: the first line of the loop.

A sampler turns prompts into finished responses. It decides when prompts are submitted, how long it waits, and what
happens to a group of which some responses never come. Other schedules are other samplers, never other trainers; what
holds in every schedule (dynamic sampling, a greedy response to each prompt) is a ``BatchSource`` around a sampler.

What a sampler can ask of the workers (``RolloutWorkers``) is either one call that ends with the slowest response, or::

    submit_rollouts(prompts)      the devices become the generator's, requests go out
    poll_rollouts(wait_s)  ...    what has ended meanwhile, as often as the sampler likes
    abort_rollouts()              the rest as it is, to be submitted again; the devices are the trainer's
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from rl_dataproto import DataProto


class GroupStatus(StrEnum):
    """Where the responses of one prompt are."""

    PENDING = "pending"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


class FailureKind(StrEnum):
    """Why a response never came. The object column ``rollout_failure`` holds it; the values are metric names."""

    LOST = "lost"
    """Nothing came before the deadline."""
    ERROR = "error"
    """The engine raised, ended the request by itself, or answered with no tokens."""
    MALFORMED = "malformed"
    """What came is not an answer: lengths that differ, numbers that are none, another request's name."""


@dataclass(slots=True)
class PromptGroup:
    """All responses to one prompt.

    Attributes:
        uid: names the group.
        size: sampled responses asked for; a greedy one beside them does not count.
        status: ``finished`` when at least one response came, ``failed`` when none did.
        num_failed: responses that never came; the group trains with the others.
        errors: why, one text for each failed response.
        kinds: the same, as ``FailureKind``.
        deadline_s: seconds that each response may take while its devices generate; None before it is submitted.
    """

    uid: str
    size: int
    status: GroupStatus = GroupStatus.PENDING
    num_failed: int = 0
    errors: tuple[str, ...] = ()
    kinds: tuple[FailureKind, ...] = ()
    deadline_s: float | None = None


class RolloutWorkers(Protocol):
    """The registered methods of the actor-rollout worker group that a sampler may call."""

    def generate_sequences(self, prompts: DataProto) -> DataProto:
        """One response for each row; ends with the slowest. See ``ActorRolloutRefWorker``."""

    def submit_rollouts(self, prompts: DataProto) -> DataProto:
        """Start or continue one response for each row; returns at once, no rows, metrics of the hand-over."""

    def poll_rollouts(self, wait_s: float) -> DataProto:
        """Rows that have ended; waits up to ``wait_s`` seconds for the first."""

    def abort_rollouts(self) -> DataProto:
        """All rows that are left, with what they have; the devices go back to training."""

    def get_policy_version(self) -> int:
        """Version that ``submit_rollouts`` would generate with."""


class BatchSource(ABC):
    """Yields one batch of finished responses for each step of the loop. ``Stateful``.

    When ``next`` returns, the devices are the trainer's: whatever was in flight has been taken back.
    """

    groups: list[PromptGroup]
    """Every prompt that the last ``next`` had in hand, those of its batch and those that are still to come."""

    on_responses: Callable[[DataProto], None] | None = None
    """Called, if it is set, with the prompt columns and ``responses`` of rows that are whole while others still generate; so
    that their scoring can start. A schedule that learns of all responses at once does not call it."""

    @abstractmethod
    def next(self) -> DataProto:
        """The next batch: responses of as many prompts as the loader gives at a time, rows of one prompt side by side.

        That is ``data.train_batch_size``, and with dynamic sampling ``data.gen_batch_size``. Groups may be uneven: a response
        that failed is missing. ``meta_info["metrics"]`` counts what failed. A schedule that trains on tokens of older weights
        adds the jagged bool column ``on_policy_mask``: True where the weights that are trained now drew the token.

        Raises:
            StopIteration: the data is used up for the configured epochs; its value may say with what in hand.
            MissingRolloutError: more responses failed than ``trainer.max_failed_rollout_fraction`` allows.
        """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Position in the data and every counter that draws depend on. Called at every step: small, and cheap."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state``.

        Raises:
            CheckpointError: ``state`` holds prompts in flight of a schedule that keeps some, and this one does not.
        """


class Sampler(BatchSource):
    """A schedule of generation, found by name (``trainer.v1.trainer_mode``).

    Where ``rollout.greedy_baseline`` is on, its prompts have one greedy row more (``make_prompts``), and its batches the
    response to it.
    """

    @classmethod
    @abstractmethod
    def from_workers(cls, config: Any, loader: Any, workers: RolloutWorkers) -> Self:
        """The sampler of a run.

        Args:
            config: the run's configuration.
            loader: draws prompts (``rl_core.data.loader.PromptLoader``).
            workers: the actor-rollout worker group.
        """
