"""The training engine contract: one role's model on one worker process.

An engine is SPMD: every worker of the group builds one and calls the same methods in the same order. What a rank
holds of the model (a shard, a pipeline stage, a slice of the vocabulary) is its own business; the contract speaks
about whole sequences and whole tensors.

Three promises every engine keeps, whatever it is made of:

1.  *Gradients are sums.* What ``optimizer_step`` applies is the sum over all ranks and micro-batches of the
    gradient of the scalar that the loss function returned, each sequence counted once. Loss functions divide by
    the totals of the whole mini-batch, so an engine never averages.
2.  *Ranks may get unequal work*, zero rows included, and still meet in every collective.
3.  *Only collecting ranks answer* (``dispatch_info().is_collect``): one for each data-parallel rank; the others
    return None.

Rows that a loss compares with each other stay in one micro-batch: see ``ROWS_TOGETHER_KEY``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from rl_core.contracts.weights import WeightBucket, WeightManifest, WeightStream
from rl_core.errors import ConfigError

if TYPE_CHECKING:
    from rl_dataproto import DataProto
    from torch import Tensor

    from rl_core.metrics import Metric
    from rl_core.single_controller.base.collective import DispatchInfo, WorkerContext


ROWS_TOGETHER_KEY: Final = "rows_together"
"""Key of ``DataProto.meta_info``: so many consecutive rows, from the first on, are one unit, which ``forward_backward`` cuts
into micro-batches only as a whole. A size in sequences then means as many whole units as it holds, one at least; a unit over
a token budget has a micro-batch to itself. A batch without the key has units of one row."""


class EngineRole(StrEnum):
    """What the model is for."""

    POLICY = "policy"
    VALUE = "value"
    REFERENCE = "reference"
    REWARD = "reward"


class EngineState(StrEnum):
    """What of a training engine can leave the device."""

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer"


class SaveState(StrEnum):
    """How far this rank is with what ``start_save`` began."""

    WRITING = "writing"
    WRITTEN = "written"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """A role's configuration in the engine's terms, the same for actor, critic, reference and reward model.

    Attributes:
        micro_batch_size: sequences in one forward/backward; None when a token budget is used.
        max_tokens: token budget of one forward/backward on each worker that takes part in it; None when
            ``micro_batch_size`` is used.
        forward_micro_batch_size: sequences in one forward without backward; None for a token budget.
        forward_max_tokens: token budget of one forward without backward.
        grad_clip: largest gradient norm over all ranks; None does not clip.
        optim: the role's ``optim`` section; None for a role that is never trained.
        total_training_steps: trainer steps of the run, for schedules; None when unknown.
        temperature: divides the logits before log-probs, entropy and sums of squared probabilities are taken.
        seed: of everything random in the engine.
        sequence_parallel_size: workers that share the tokens of each sequence; 1 shares none.
        plugin: the plugin's own section (its config dataclass), mounted under its ``config_key``.
    """

    micro_batch_size: int | None = None
    max_tokens: int | None = None
    forward_micro_batch_size: int | None = None
    forward_max_tokens: int | None = None
    grad_clip: float | None = None
    optim: Any = None
    total_training_steps: int | None = None
    temperature: float = 1.0
    compiled: bool = False
    seed: int = 1
    sequence_parallel_size: int = 1
    plugin: Any = None


@dataclass(frozen=True, slots=True)
class TokenOutputs:
    """Per-token results of one micro-batch, as a loss function sees them; never logits.

    Every tensor is ``[B, T]``, T the longest response of the micro-batch, right-padded; what stands in padding is
    unspecified. An output that the loss function did not ask for is None.

    Attributes:
        response_mask: bool, True where the policy emitted the token.
        log_probs: log-probability of each response token under the policy, temperature applied.
        entropy: entropy of the distribution each response token was drawn from, in nats.
        sum_pi_squared: sum over the vocabulary of that distribution's squared probabilities, in [1 / V, 1]; no gradient
            flows through it.
        values: critic estimate before each response token is emitted.
    """

    response_mask: Tensor
    log_probs: Tensor | None = None
    entropy: Tensor | None = None
    sum_pi_squared: Tensor | None = None
    values: Tensor | None = None


class LossFunction(Protocol):
    """Turns per-token outputs of one micro-batch into its share of the loss.

    Called where the outputs are: on the last pipeline stage, on every rank of a tensor-parallel group. It must not
    communicate. Shares add up: over any cut of the mini-batch their sum is the same number.
    """

    outputs: frozenset[str]
    """Which of ``log_probs``, ``entropy``, ``sum_pi_squared``, ``values`` it needs."""

    def __call__(self, outputs: TokenOutputs, micro_batch: DataProto) -> tuple[Tensor, Mapping[str, Metric]]:
        """The scalar share with its graph, and metrics of the micro-batch (shares too)."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """One optimizer step.

    Attributes:
        grad_norm: L2 norm over all parameters and ranks, before clipping.
        skipped: True when the norm was not finite: gradients dropped, weights and optimizer state unchanged.
        learning_rate: the rate that was (or would have been) applied.
    """

    grad_norm: float
    skipped: bool
    learning_rate: float


@dataclass(frozen=True, slots=True)
class EngineWork:
    """What an engine has computed for the rows of its rank.

    Attributes:
        tokens: of the rows, once for each pass through them.
        computed_tokens: the same with padding.
        flops: model FLOPs of the passes, recomputation and padding left out; None where the engine does not count them.
    """

    tokens: int
    computed_tokens: int
    flops: float | None = None

    def __add__(self, other: EngineWork) -> EngineWork:
        flops = None if self.flops is None or other.flops is None else self.flops + other.flops
        return EngineWork(self.tokens + other.tokens, self.computed_tokens + other.computed_tokens, flops)


class TrainingEngine(ABC):
    """One role's model on one worker process. Built by name: ``<role>.strategy``.

    Batches carry jagged columns: ``input_ids`` (prompt and response), ``responses`` and ``response_mask``; results
    are jagged like ``responses``. Rows come back in the order they came in, however they were packed.
    """

    def __init__(self, role: EngineRole, model: Any, config: EngineConfig, context: WorkerContext) -> None:
        """Store the arguments; nothing is allocated before ``initialize``.

        Args:
            role: what the model is for.
            model: the ``model`` section (path and so on).
            config: the role's configuration in engine terms.
            context: rank, device and collective of this worker.
        """
        self.role = role
        self.model_config = model
        self.config = config
        self.context = context

    @classmethod
    def alone(cls, config: EngineConfig, dtype: str | None = None) -> EngineConfig:
        """``config`` for one process on the CPU that only reads what many workers wrote, to export it.

        Args:
            config: of the role in its run.
            dtype: format of the exported weights; None leaves that of the run.

        Raises:
            ConfigError: the engine has no choice of format.
        """
        if dtype is not None:
            msg = f"--dtype is {dtype}, but {cls.__name__} exports weights as it holds them. Leave it out."
            raise ConfigError(msg)
        return replace(config, optim=None, sequence_parallel_size=1, compiled=False)

    @abstractmethod
    def initialize(self) -> None:
        """Load the weights, build optimizer and schedule. Collective."""

    @abstractmethod
    def dispatch_info(self) -> DispatchInfo:
        """Which share of the data this rank gets, and whether it answers."""

    @abstractmethod
    def forward(self, batch: DataProto, outputs: Collection[str]) -> DataProto | None:
        """Per-token results without gradients.

        Args:
            batch: this rank's rows, possibly none.
            outputs: any of ``log_probs``, ``entropy``, ``sum_pi_squared`` (policy and reference) or ``values`` (the other
                roles); see ``TokenOutputs``.

        For the reward role, ``values`` on a token is the score of the sequence up to and including that token.

        Returns:
            A DataProto with the asked columns, jagged like ``responses``, float32 (float64 if the model is), rows in
            input order; None on a rank that does not collect.
        """

    @abstractmethod
    def forward_backward(self, batch: DataProto, loss_fn: LossFunction) -> Mapping[str, Metric] | None:
        """Add the gradient of one mini-batch's share to what is accumulated.

        Cuts ``batch`` into micro-batches as configured and calls ``loss_fn`` once for each.

        Returns:
            The loss function's metrics added up over micro-batches, with the loss itself under ``loss``; None on a
            rank that does not collect.
        """

    @abstractmethod
    def optimizer_step(self) -> StepResult:
        """Clip, apply and clear the accumulated gradients. Collective; every rank returns the same."""

    @abstractmethod
    def lr_scheduler_step(self) -> float:
        """Advance the schedule by one trainer step; the new learning rate."""

    @abstractmethod
    def weight_manifest(self, stream: WeightStream = "weights") -> WeightManifest:
        """Every tensor of ``stream`` in sending order; the same on every rank. No communication."""

    @abstractmethod
    def named_weights(self, bucket_bytes: int, stream: WeightStream = "weights") -> Iterator[WeightBucket]:
        """The tensors of ``weight_manifest(stream)`` in its order, whole, in buckets. Collective.

        Every rank yields the same buckets, tied entries left out. A tensor is valid until the next bucket is asked for.
        """

    @abstractmethod
    def offload(self, states: Collection[EngineState]) -> None:
        """Move ``states`` off the device; what is not there is ignored. Values survive exactly."""

    @abstractmethod
    def onload(self, states: Collection[EngineState]) -> None:
        """Bring ``states`` back to the device; what is there already is ignored."""

    @abstractmethod
    def resident(self) -> frozenset[EngineState]:
        """What is on the device now."""

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Write weights, optimizer, schedule and RNG below ``directory``. Collective; the caller makes it atomic."""

    def start_save(self, directory: Path) -> None:
        """``save``, but return once the state is copied, and write the copy while training goes on. Collective.

        What lies below ``directory`` is a checkpoint only after ``finish_save``, which is called before the next save. An
        engine without it saves at once.
        """
        self.save(directory)

    def poll_save(self) -> SaveState:
        """How far this rank is with it. No communication."""
        return SaveState.WRITTEN

    def finish_save(self) -> None:  # noqa: B027 - an engine without it has nothing left to do
        """Wait until every rank has written, and make the checkpoint whole; nothing where none was begun. Collective.

        Raises:
            CheckpointError: a rank could not write; raised on every rank, with the file.
        """

    @abstractmethod
    def load(self, directory: Path) -> None:
        """Take over what ``save`` wrote, from any number of ranks. Collective.

        Raises:
            CheckpointError: the files belong to another model, or are incomplete.
        """

    @abstractmethod
    def export_hf(self, directory: Path) -> None:
        """Write the model as a Hugging Face checkpoint. Collective; rank 0 writes."""

    def take_work(self) -> EngineWork | None:
        """What was computed since the last call, and start anew; None for an engine that does not count."""
        return None

    def state_bytes(self) -> Mapping[EngineState, int]:
        """Bytes on the device of each state that is there; nothing for an engine that does not count."""
        return {}

    def disable_adapter(self) -> AbstractContextManager[None]:
        """Run as the base model: how a LoRA policy is its own reference. Without an adapter, nothing changes."""
        return nullcontext()

    def close(self) -> None:  # noqa: B027 - many engines hold nothing
        """Give back what the engine holds. Called once, also after a failure."""
