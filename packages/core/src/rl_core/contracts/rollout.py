"""The generation engine contract: token in, token out, asynchronous.

One *replica* samples from one copy of the weights and may span several worker processes. Every worker of a replica
builds a ``RolloutEngine``; the replica's first rank, the *lead* (``dispatch_info().is_collect``), takes requests, the
others only offer their weight sinks and follow the lead's life cycle.

All methods are coroutines and run on one event loop owned by the worker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from rl_core.contracts.weights import WeightBucket, WeightDigest, WeightManifest, WeightStream

if TYPE_CHECKING:
    import numpy as np

    from rl_core.metrics import Metric
    from rl_core.single_controller.base.collective import DispatchInfo, WorkerContext

FinishReason = Literal["stop", "length", "abort"]


class RolloutState(StrEnum):
    """What of a generation engine can leave the device."""

    WEIGHTS = "weights"
    KV_CACHE = "kv_cache"


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """How one sequence is drawn.

    Attributes:
        temperature: divides the logits; 0 takes the most likely token.
        top_p: smallest set of tokens with at least this probability; 1 keeps all.
        top_k: that many most likely tokens; -1 keeps all.
        max_tokens: most response tokens, the end-of-sequence token included.
        min_tokens: no end of sequence before so many response tokens.
        stop_token_ids: tokens that end the response, besides the model's own; they are part of it.
        stop: strings that end the response once they stand in its text.
        ignore_eos: go on to ``max_tokens`` whatever is drawn.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    max_tokens: int = 16
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutRequest:
    """One sequence to generate.

    Attributes:
        request_id: unique among the requests in flight.
        prompt_ids: token ids of the prompt, at least one.
        sampling: how to draw.
        seed: the draw at response position t depends on (seed, t) and the distribution alone: never on other
            requests, on batching, or on what the engine did before.
        required_version: policy version that must produce the tokens; None accepts the loaded one.
        images: images of the prompt, in the engine's input form.
        response_ids: the beginning of the response, drawn by an earlier request of the same seed. The engine goes on
            behind it: response positions, ``max_tokens``, ``min_tokens`` and stop strings count from its first token.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    sampling: SamplingParams
    seed: int
    required_version: int | None = None
    images: tuple[Any, ...] = ()
    response_ids: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutOutput:
    """One generated sequence.

    Attributes:
        request_id: of the request.
        token_ids: response tokens, the end-of-sequence token included; without the request's ``response_ids``.
        log_probs: log-probability of each token under the distribution it was drawn from (temperature applied);
            None for an engine that has none.
        finish_reason: ``stop`` (end of sequence or a stop condition), ``length`` (``max_tokens``), ``abort``.
        versions: ``(policy version, number of tokens)`` spans in order; their counts add up to the response length.
        extras: per-token arrays [response length, ...] passed through as columns, for example routed experts.
    """

    request_id: str
    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...] | None
    finish_reason: FinishReason
    versions: tuple[tuple[int, int], ...]
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    """Whether an engine can serve, and why not."""

    ok: bool
    detail: str = ""


class WeightSink(ABC):
    """Where one rank of a replica takes its weights.

    ``begin`` … ``put`` … ``end`` is one hand-over; after ``abort``, or an error in any of them, the engine refuses to
    generate until a hand-over has ended well.
    """

    @abstractmethod
    async def begin(self, version: int, manifest: WeightManifest) -> None:
        """Check that ``manifest`` fits the model, before any collective and before a weight is touched.

        Raises:
            WeightSyncError: names that are missing or unknown here, or shapes or dtypes that differ, all listed.
        """

    @abstractmethod
    async def put(self, bucket: WeightBucket) -> None:
        """Copy what this rank needs from ``bucket``. The tensors are only valid during the call."""

    @abstractmethod
    async def end(self, digest: WeightDigest) -> None:
        """Check that every entry of the manifest came whole and unchanged, then serve the new version.

        Raises:
            WeightSyncError: an entry did not come, or its digest differs; names listed.
        """

    @abstractmethod
    async def abort(self, reason: str) -> None:
        """The hand-over will not end; the weights are unusable."""


class RolloutEngine(ABC):
    """A generation engine on one worker process. Built by name: ``actor_rollout_ref.rollout.name``."""

    has_log_probs: bool = True
    """Whether outputs carry ``log_probs``; without them, generator and trainer cannot be compared."""

    def __init__(self, model: Any, config: Any, context: WorkerContext) -> None:
        """Store the arguments; nothing is allocated before ``initialize``.

        Args:
            model: the ``model`` section (path and so on).
            config: the ``rollout`` section, with the plugin's own section below it.
            context: rank, device and collective of this worker.
        """
        self.model_config = model
        self.config = config
        self.context = context

    @abstractmethod
    async def initialize(self) -> None:
        """Build the engine. Weights need not be there: the trainer brings them before the first request."""

    @abstractmethod
    def dispatch_info(self) -> DispatchInfo:
        """``dp_rank`` is the replica; the lead collects."""

    @abstractmethod
    def weight_sinks(self) -> Mapping[int, WeightSink]:
        """Rank within the replica -> its sink, for the sinks that *this* worker feeds.

        Over the workers of a replica every rank appears exactly once.
        """

    def weight_streams(self) -> tuple[WeightStream, ...]:
        """What the next hand-over must bring, in this order; the last stream's end makes the version.

        An engine that keeps adapters beside the base model asks for ``base`` and ``adapter``, or for ``adapter`` alone while
        it holds the base.
        """
        return ("weights",)

    @abstractmethod
    async def generate(self, request: RolloutRequest) -> RolloutOutput:
        """Sample one sequence. Many calls are in flight at once; the engine batches them.

        Raises:
            WeightSyncError: the weights are stale (another version was required), partial or discarded.
            RlError: the request cannot be served: empty prompt, too long for the model, ``response_ids`` that leave no
                token to draw, engine asleep.
        """

    @abstractmethod
    def version(self) -> int | None:
        """Policy version of the loaded weights; None when they are missing, partial or discarded."""

    @abstractmethod
    async def sleep(self, level: int) -> frozenset[RolloutState]:
        """Give device memory back. Level 1 keeps the weights somewhere else, level 2 discards them.

        Returns:
            What can be brought back by ``wake`` with its values; the cache never can.
        """

    @abstractmethod
    async def wake(self, tags: Collection[RolloutState]) -> None:
        """Take memory for ``tags`` again. After level 2, the weights are memory without values until a sync."""

    @abstractmethod
    def resident(self) -> frozenset[RolloutState]:
        """What is on the device now."""

    @abstractmethod
    async def reset_prefix_cache(self) -> None:
        """Forget cached prefixes: they belong to weights that are gone."""

    @abstractmethod
    async def abort(self, request_ids: Sequence[str] | None = None) -> None:
        """End these requests (all of them for None) with what they have, finish reason ``abort``."""

    @abstractmethod
    async def pause(self) -> None:
        """Stop drawing tokens; requests stay in flight."""

    @abstractmethod
    async def resume(self) -> None:
        """Draw on, with the weights loaded now."""

    @abstractmethod
    async def health(self) -> Health:
        """Whether the engine can serve."""

    async def metrics(self) -> Mapping[str, Metric]:
        """What the engine has to say about the generation phase that ends, reported with the step's metrics."""
        return {}

    async def close(self) -> None:  # noqa: B027 - many engines hold nothing
        """Give back what the engine holds. Called once, also after a failure."""
