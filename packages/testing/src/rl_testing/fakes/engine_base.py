"""What both fake training engines share: everything but where the parts of the model are.

A rank holds *parts*: name -> some rows of that tensor. A subclass says which part is where, runs a micro-batch through
the parts, and adds their gradients over ranks.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rl_core.contracts.engine import (
    ROWS_TOGETHER_KEY,
    EngineConfig,
    EngineRole,
    EngineState,
    EngineWork,
    LossFunction,
    StepResult,
    TokenOutputs,
    TrainingEngine,
)
from rl_core.contracts.weights import WeightBucket, WeightManifest, WeightStream
from rl_core.errors import ConfigError, RlError, ShapeError
from rl_core.metrics import Metric, merge_metrics
from rl_core.single_controller.base.collective import WorkerContext
from rl_dataproto import DataProto
from torch import Tensor

from rl_testing.fakes import checkpoints, optimizers, tiny_model
from rl_testing.fakes.cutting import cut_units
from rl_testing.fakes.device_states import DeviceStates
from rl_testing.fakes.engine_config import FakeEngineConfig
from rl_testing.fakes.micro_batch import MicroBatch, OpenBatch, jagged, require_columns
from rl_testing.fakes.parts import Part, Parts, cut, gather_whole
from rl_testing.fakes.weight_stream import weight_stream


class EngineBase(TrainingEngine):
    """A training engine over the tiny model."""

    def __init__(self, role: EngineRole, model: Any, config: EngineConfig, context: WorkerContext) -> None:
        """See ``TrainingEngine``; ``config.plugin`` is a ``FakeEngineConfig`` or None."""
        super().__init__(role, model, config, context)
        self.options: FakeEngineConfig = config.plugin or FakeEngineConfig()
        self.states = DeviceStates()
        self.tiny: tiny_model.TinyConfig | None = None
        self.places: dict[str, Part] = {}
        """Name of each tensor of which this rank holds a part -> which part."""
        self.generator = torch.Generator()
        self.schedule_step = 0
        self.skipped_steps = 0
        """Optimizer steps that were not applied because the gradient was not finite."""
        self.computed = EngineWork(0, 0)
        """What was computed since it was last asked for."""

    # What a subclass adds.

    @abstractmethod
    def place(self, name: str, rank: int) -> Part | None:
        """What ``rank`` holds of the tensor ``name``; None for nothing. No communication."""

    @abstractmethod
    def random_stream(self) -> int:
        """Number of this rank's random stream; ranks that must draw alike share one."""

    @abstractmethod
    def compute(self, micro: MicroBatch, wanted: frozenset[str]) -> dict[str, Tensor] | None:
        """Outputs [N] of a micro-batch without gradient; None where they are not."""

    @abstractmethod
    def compute_and_accumulate(self, micro: MicroBatch, loss_fn: LossFunction) -> dict[str, Metric] | None:
        """Forward, loss, backward; metrics, or None where the loss is not. Does not call the loss without rows."""

    @abstractmethod
    def reduce_gradients(self, gradients: Parts) -> Parts:
        """The sum over all ranks of the gradient of each of this rank's parts. Collective."""

    # Life.

    def initialize(self) -> None:
        """See ``TrainingEngine``."""
        if self.config.optim is not None:
            optimizers.check(self.config.optim)
            self._learning_rate()
        self.tiny = tiny_model.TinyConfig.from_model(self.model_config)
        self._make_places()
        whole = tiny_model.init_weights(self.tiny, value_head=self.has_score_head)
        self.states.put(EngineState.PARAMETERS, cut(whole, self.places))
        if self.config.optim is not None:
            self.states.put(EngineState.GRADIENTS, {})
            self.states.put(EngineState.OPTIMIZER, {})
        self.seed_generator()

    def _make_places(self) -> None:
        names = tiny_model.shapes(self._require_initialized("initialize"), value_head=self.has_score_head)
        places = {name: self.place(name, self.context.rank) for name in names}
        self.places = {name: place for name, place in places.items() if place is not None}

    @property
    def has_score_head(self) -> bool:
        """Whether the model ends in one number for each token instead of logits."""
        return self.role in (EngineRole.VALUE, EngineRole.REWARD)

    def seed_generator(self) -> None:
        """Start this rank's random stream anew, as it stands at the current step of the schedule."""
        self.generator.manual_seed((self.config.seed * 1009 + self.random_stream()) * 100_003 + self.schedule_step)

    def parameters(self, what_for: str) -> Parts:
        """This rank's parts.

        Raises:
            RlError: the engine is not initialized, or the parameters are offloaded.
        """
        self._require_initialized(what_for)
        return self.states.get(EngineState.PARAMETERS, what_for)

    def _require_initialized(self, what_for: str) -> tiny_model.TinyConfig:
        if self.tiny is None:
            msg = f"{what_for} was called on a {type(self).__name__} ({self.role}) before initialize() or after close()"
            raise RlError(msg)
        return self.tiny

    def close(self) -> None:
        """See ``TrainingEngine``."""
        self.states.clear()
        self.tiny = None

    # Computing.

    def forward(self, batch: DataProto, outputs: Collection[str]) -> DataProto | None:
        """See ``TrainingEngine``."""
        self.parameters("forward")
        wanted = self.known_outputs(outputs)
        rows: dict[str, list[Tensor]] = {name: [torch.empty(0, dtype=torch.float64)] * len(batch) for name in wanted}
        size = self.config.forward_micro_batch_size
        budget = self.config.forward_max_tokens
        with torch.no_grad():
            for micro in self.micro_batches(batch, size, budget):
                for name, per_token in (self.compute(micro, wanted) or {}).items():
                    self.put_rows(rows[name], micro, per_token)
        if not self.dispatch_info().is_collect:
            return None
        return DataProto.from_dict(tensors={name: jagged(rows[name], torch.float64) for name in sorted(wanted)})

    def put_rows(self, rows: list[Tensor], micro: MicroBatch, per_token: Tensor) -> None:
        """Put the responses of a micro-batch where their rows came from."""
        for index, row in zip(micro.indices, per_token.split(micro.response_lengths), strict=True):
            rows[index] = row

    def forward_backward(self, batch: DataProto, loss_fn: LossFunction) -> Mapping[str, Metric] | None:
        """See ``TrainingEngine``."""
        self.parameters("forward_backward")
        self.states.get(EngineState.GRADIENTS, "forward_backward")
        self.known_outputs(loss_fn.outputs)
        require_columns(batch, "input_ids", "responses", "response_mask")
        reports: list[Mapping[str, Metric]] = [{"loss": Metric(0.0, "sum", keep_nan=True, count=0)}]
        for micro in self.micro_batches(batch, self.config.micro_batch_size, self.config.max_tokens):
            reports.append(self.compute_and_accumulate(micro, loss_fn) or {})
        return merge_metrics(reports) if self.dispatch_info().is_collect else None

    def known_outputs(self, outputs: Collection[str]) -> frozenset[str]:
        """``outputs``, if the role has them all.

        Raises:
            ConfigError: names those that it has not.
        """
        known = {"values"} if self.has_score_head else {"log_probs", "entropy", "sum_pi_squared"}
        if not outputs or set(outputs) - known:
            msg = f"outputs {sorted(outputs)} were asked of a {self.role} engine; it has {sorted(known)}"
            raise ConfigError(msg)
        return frozenset(outputs)

    def micro_batches(self, batch: DataProto, size: int | None, budget: int | None) -> Iterator[MicroBatch]:
        """Cut the rows into micro-batches, and add empty ones until every rank has as many."""
        opened = OpenBatch.of(batch)
        together = batch.meta_info.get(ROWS_TOGETHER_KEY, 1)
        cuts = cut_units([len(row) for row in opened.ids], size, budget, together)
        most = max(self.context.collective.all_gather_object(len(cuts)))
        for indices in [*cuts, *[[] for _ in range(most - len(cuts))]]:
            micro = opened.take(indices)
            self.computed += EngineWork(sum(len(opened.ids[index]) for index in indices), micro.ids.numel())
            self.meet(micro)
            yield micro

    def take_work(self) -> EngineWork | None:
        """See ``TrainingEngine``; FLOPs are not counted."""
        work, self.computed = self.computed, EngineWork(0, 0)
        return work

    def meet(self, micro: MicroBatch) -> None:
        """Wait for every rank, as an engine does that gathers its parameters for each micro-batch."""
        self.context.collective.barrier()

    def layers(self, parts: Mapping[str, Tensor], numbers: Sequence[int], x: Tensor) -> Tensor:
        """[B, L, H] through layers ``numbers``; drops out only where gradients are taken."""
        for number in numbers:
            token, context = tiny_model.layer_names(number)
            x = tiny_model.layer_forward(x, parts[token], parts[context])
            if self.options.dropout and torch.is_grad_enabled():
                kept = torch.rand(x.shape, generator=self.generator, dtype=x.dtype) >= self.options.dropout
                x = x * kept / (1 - self.options.dropout)
        return x

    def token_outputs(self, parts: Mapping[str, Tensor], hidden: Tensor, micro: MicroBatch) -> dict[str, Tensor]:
        """[B, L, H] -> every output of the role, [N] each."""
        at = self.output_positions(micro)
        states = hidden[micro.row, at]
        if self.has_score_head:
            return {"values": (states @ parts[tiny_model.SCORE].T).squeeze(-1)}
        return self.score_tokens(parts, states, micro.tokens)

    def output_positions(self, micro: MicroBatch) -> Tensor:
        """[N] positions whose hidden states give the outputs of the response tokens.

        A token is predicted, and its state valued, one position before it; a reward model judges what it has read.
        """
        return micro.position if self.role is EngineRole.REWARD else micro.position - 1

    @abstractmethod
    def score_tokens(self, parts: Mapping[str, Tensor], states: Tensor, tokens: Tensor) -> dict[str, Tensor]:
        """States [N, H] and the tokens after them [N] -> every output of a policy, [N] each, temperature applied."""

    def loss(
        self, micro: MicroBatch, outputs: Mapping[str, Tensor], loss_fn: LossFunction
    ) -> tuple[Tensor, dict[str, Metric]]:
        """Call the loss function with what it asked for; the loss is among the metrics.

        Raises:
            ShapeError: it did not return a scalar.
        """
        seen = {name: micro.padded(outputs[name]) for name in loss_fn.outputs}
        loss, metrics = loss_fn(TokenOutputs(micro.response_mask(), **seen), micro.rows())
        if loss.ndim:
            msg = f"a loss function returns a scalar; {type(loss_fn).__name__} returned shape {tuple(loss.shape)}"
            raise ShapeError(msg)
        return loss, {**metrics, "loss": Metric(float(loss.detach()), "sum", keep_nan=True)}

    def leaves(self) -> Parts:
        """This rank's parts as leaves of a graph."""
        return {name: part.detach().requires_grad_() for name, part in self.parameters("forward_backward").items()}

    def accumulate(self, names: Sequence[str], gradients: Sequence[Tensor | None]) -> None:
        """Add gradients of parts to what is accumulated."""
        stored = self.states.get(EngineState.GRADIENTS, "forward_backward")
        for name, gradient in zip(names, gradients, strict=True):
            if gradient is not None:
                stored[name] = stored[name] + gradient if name in stored else gradient

    # Stepping.

    def optimizer_step(self) -> StepResult:
        """See ``TrainingEngine``."""
        parameters = self.parameters("optimizer_step")
        stored = self.states.get(EngineState.GRADIENTS, "optimizer_step")
        state = self.states.get(EngineState.OPTIMIZER, "optimizer_step")
        gradients = self.reduce_gradients(
            {name: stored.get(name, torch.zeros_like(part)) for name, part in parameters.items()}
        )
        norm = self._grad_norm(gradients)
        learning_rate = self._learning_rate()
        self.states.put(EngineState.GRADIENTS, {})
        if not self.may_apply(norm):
            self.skipped_steps += 1
            return StepResult(norm, skipped=True, learning_rate=learning_rate)
        clipped = self.clip(gradients, norm)
        new_state = optimizers.apply_gradients(self.config.optim, learning_rate, parameters, clipped, state)
        self.states.put(EngineState.OPTIMIZER, new_state)
        return StepResult(norm, skipped=False, learning_rate=learning_rate)

    def may_apply(self, norm: float) -> bool:
        """Whether a gradient of this norm may change the weights."""
        return math.isfinite(norm)

    def clip(self, gradients: Parts, norm: float) -> Parts:
        """Gradients of norm ``grad_clip`` at most."""
        limit = self.config.grad_clip
        if limit is None or norm <= limit:
            return gradients
        return {name: gradient * (limit / norm) for name, gradient in gradients.items()}

    def _grad_norm(self, gradients: Parts) -> float:
        own = {
            (name, self.places[name].start): float(gradient.square().sum())
            for name, gradient in gradients.items()
            if not self.places[name].is_copy
        }
        # Ranks with the same part report the same key, so it counts once; sorted, so every rank adds in one order.
        squares: dict[tuple[str, int], float] = {}
        for report in self.context.collective.all_gather_object(own):
            squares |= report
        return math.sqrt(sum(squares[key] for key in sorted(squares)))

    def lr_scheduler_step(self) -> float:
        """See ``TrainingEngine``."""
        self._require_initialized("lr_scheduler_step")
        if self.config.optim is None:
            msg = f"lr_scheduler_step was called on a {self.role} engine without an `optim` section: it has no schedule"
            raise ConfigError(msg)
        self.schedule_step += 1
        return self._learning_rate()

    def _learning_rate(self) -> float:
        return optimizers.learning_rate_at(self.schedule_step, self.config.optim, self.config.total_training_steps)

    # Weights.

    def weight_manifest(self, stream: WeightStream = "weights") -> WeightManifest:
        """See ``TrainingEngine``."""
        tiny = self._require_initialized("weight_manifest")
        if stream != "weights":
            msg = f"the stream {stream!r} was asked of a {type(self).__name__}; it has no adapter, only 'weights'"
            raise ConfigError(msg)
        names = tiny_model.shapes(tiny, value_head=self.has_score_head)
        ranks = range(self.context.world_size)
        owners = {name: tuple(rank for rank in ranks if self.place(name, rank) is not None) for name in names}
        return tiny_model.manifest(tiny, value_head=self.has_score_head, owners=owners)

    def named_weights(self, bucket_bytes: int, stream: WeightStream = "weights") -> Iterator[WeightBucket]:
        """See ``TrainingEngine``; what a bucket held is overwritten with NaN once the next one is asked for."""
        return weight_stream(self.gather, self.weight_manifest(stream), bucket_bytes)

    def gather(self, names: Sequence[str]) -> Parts:
        """Whole tensors ``names``; copies. Collective."""
        return gather_whole(self.parameters("gather"), self.places, names, self.context.collective)

    def offload(self, states: Collection[EngineState]) -> None:
        """See ``TrainingEngine``."""
        self._require_initialized("offload")
        self.states.offload(states)

    def onload(self, states: Collection[EngineState]) -> None:
        """See ``TrainingEngine``."""
        self._require_initialized("onload")
        self.states.onload(states)

    def resident(self) -> frozenset[EngineState]:
        """See ``TrainingEngine``."""
        return self.states.resident()

    def save(self, directory: Path) -> None:
        """See ``TrainingEngine``."""
        checkpoints.save(self, directory)

    def load(self, directory: Path) -> None:
        """See ``TrainingEngine``."""
        checkpoints.load(self, directory)

    def export_hf(self, directory: Path) -> None:
        """See ``TrainingEngine``."""
        checkpoints.export(self, directory)
