"""Pipeline fake: stages hold different layers, and the last stage's ranks share the vocabulary.

::

    rank = (dp_rank * pp_size + pp_rank) * tp_size + tp_rank

    stage 0                       last stage
    embedding, first layers ──▶   other layers, head rows of this tp_rank ──▶ log-probs ──▶ loss
                            ◀──   gradient of the activations

The head is the only tensor that is cut; everything else of a stage is held by all of its ranks. The loss is called on
every rank of the last stage; its rank 0 answers. Activations and their gradients travel through the collective, and
autograd ends at each border.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from rl_core.contracts.engine import EngineConfig, EngineRole, LossFunction
from rl_core.metrics import Metric
from rl_core.single_controller.base.collective import DispatchInfo, WorkerContext
from torch import Tensor

from rl_testing.fakes import tiny_model
from rl_testing.fakes.engine_base import EngineBase
from rl_testing.fakes.engine_config import Layout
from rl_testing.fakes.micro_batch import MicroBatch
from rl_testing.fakes.parts import Part, Parts
from rl_testing.fakes.vocab_parallel import CopyToGroup, ScoreTokens, all_sum


class PipelineEngine(EngineBase):
    """Pipeline stages, and a head that is sharded over the vocabulary."""

    def __init__(self, role: EngineRole, model: Any, config: EngineConfig, context: WorkerContext) -> None:
        """See ``TrainingEngine``.

        Raises:
            ConfigError: the workers cannot be divided as configured.
        """
        super().__init__(role, model, config, context)
        self.layout = Layout.of(context.rank, context.world_size, self.options)

    def dispatch_info(self) -> DispatchInfo:
        """The ranks of one pipeline share their rows; rank 0 of the last stage answers."""
        here = self.layout
        return DispatchInfo(here.dp_rank, here.dp_size, is_collect=self._is_last and here.tp_rank == 0)

    def initialize(self) -> None:
        """See ``TrainingEngine``."""
        here, world = self.layout, self.context.collective
        self._pipeline = world.subgroup(
            [here.rank_of(dp_rank=here.dp_rank, pp_rank=pp, tp_rank=here.tp_rank) for pp in range(here.pp_size)]
        )
        self._sharers = world.subgroup(
            [here.rank_of(dp_rank=here.dp_rank, pp_rank=here.pp_rank, tp_rank=tp) for tp in range(here.tp_size)]
        )
        self._replicas = world.subgroup(
            [here.rank_of(dp_rank=dp, pp_rank=here.pp_rank, tp_rank=here.tp_rank) for dp in range(here.dp_size)]
        )
        super().initialize()

    @property
    def _is_last(self) -> bool:
        return self.layout.pp_rank == self.layout.pp_size - 1

    def place(self, name: str, rank: int) -> Part | None:
        """See ``EngineBase``."""
        tiny = self._require_initialized("place")
        there = Layout.of(rank, self.context.world_size, self.options)
        if there.pp_rank != self._stage_of(name):
            return None
        is_first_replica = there.dp_rank == 0
        if name != tiny_model.HEAD:
            rows = tiny_model.shapes(tiny, value_head=self.has_score_head)[name][0]
            return Part(name, 0, rows, sends=is_first_replica and there.tp_rank == 0)
        start, stop = _share(tiny.vocab_size, there.tp_rank, there.tp_size)
        if tiny.tie_word_embeddings:
            return Part(tiny_model.EMBED, start, stop, sends=False, is_copy=True)
        return Part(name, start, stop, sends=is_first_replica)

    def _stage_of(self, name: str) -> int:
        if name == tiny_model.EMBED:
            return 0
        for stage in range(self.layout.pp_size):
            if any(name in tiny_model.layer_names(layer) for layer in self._layers_of(stage)):
                return stage
        return self.layout.pp_size - 1

    def _layers_of(self, stage: int) -> range:
        return range(*_share(self._require_initialized("place").num_layers, stage, self.layout.pp_size))

    def random_stream(self) -> int:
        """One for each stage of each pipeline; ranks that share a stage must drop out the same."""
        return self.layout.dp_rank * self.layout.pp_size + self.layout.pp_rank

    def compute(self, micro: MicroBatch, wanted: frozenset[str]) -> dict[str, Tensor] | None:
        """See ``EngineBase``."""
        parts = self.parameters("forward")
        _, hidden = self._stage_forward(parts, micro)
        if not self._is_last:
            return None
        outputs = self.token_outputs(parts, hidden, micro)
        return {name: outputs[name] for name in wanted}

    def compute_and_accumulate(self, micro: MicroBatch, loss_fn: LossFunction) -> dict[str, Metric] | None:
        """See ``EngineBase``."""
        leaves = self.leaves()
        received, hidden = self._stage_forward(leaves, micro)
        if not self._is_last:
            self._stage_backward(leaves, received, hidden)
            return None
        outputs = self.token_outputs(leaves, hidden, micro)
        loss, metrics = hidden.sum() * 0, None
        if not micro.is_empty:
            loss, metrics = self.loss(micro, outputs, loss_fn)
        self._stage_backward(leaves, received, loss)
        return metrics if self.layout.tp_rank == 0 else None

    def _stage_forward(self, parts: Mapping[str, Tensor], micro: MicroBatch) -> tuple[Tensor | None, Tensor]:
        """Pass the activations down the pipeline; what this stage received (a leaf) and what it made of it."""
        here = self.layout
        received: Tensor | None = None
        result = torch.empty(0)
        for stage in range(here.pp_size):
            if stage == here.pp_rank:
                x = parts[tiny_model.EMBED][micro.ids] if received is None else received
                result = self.layers(parts, self._layers_of(stage), x)
            if stage + 1 < here.pp_size:
                sent = self._pipeline.broadcast_object(result.detach(), source=stage)
                if stage + 1 == here.pp_rank:
                    received = sent.clone().requires_grad_()
        return received, result

    def _stage_backward(self, leaves: Parts, received: Tensor | None, result: Tensor) -> None:
        """Pass gradients up the pipeline.

        Args:
            leaves: this stage's parts.
            received: this stage's input; None on the first.
            result: the loss on the last stage, otherwise what was sent on.
        """
        here = self.layout
        inputs = [*leaves.values()] if received is None else [received, *leaves.values()]
        gradient: Tensor | None = None
        for stage in reversed(range(here.pp_size)):
            own: Tensor | None = None
            if stage == here.pp_rank:
                own = self._backward(list(leaves), inputs, result, gradient)
            if stage > 0:
                sent = self._pipeline.broadcast_object(own, source=stage)
                if stage - 1 == here.pp_rank:
                    gradient = sent

    def _backward(
        self, names: list[str], inputs: list[Tensor], result: Tensor, gradient: Tensor | None
    ) -> Tensor | None:
        """Accumulate this stage's gradients; the gradient of its input, None on the first stage."""
        gradients: tuple[Tensor | None, ...] = (None,) * len(inputs)
        if result.requires_grad:
            gradients = torch.autograd.grad(result, inputs, grad_outputs=gradient, allow_unused=True)
        if len(inputs) == len(names):
            self.accumulate(names, gradients)
            return None
        self.accumulate(names, gradients[1:])
        return torch.zeros_like(inputs[0]) if gradients[0] is None else gradients[0]

    def score_tokens(self, parts: Mapping[str, Tensor], states: Tensor, tokens: Tensor) -> dict[str, Tensor]:
        """See ``EngineBase``; each rank has the logits of its share of the vocabulary."""
        states = CopyToGroup.apply(states, self._sharers)
        logits = states @ parts[tiny_model.HEAD].T / self.config.temperature
        scores = ScoreTokens.apply(logits, tokens, self.places[tiny_model.HEAD].start, self._sharers)
        return dict(zip(("log_probs", "entropy", "sum_pi_squared"), scores, strict=True))

    def reduce_gradients(self, gradients: Parts) -> Parts:
        """See ``EngineBase``; both owners of a tied tensor get the gradient of both uses."""
        total = {name: all_sum(gradient, self._replicas) for name, gradient in gradients.items()}
        if not self._require_initialized("optimizer_step").tie_word_embeddings or self.has_score_head:
            return total
        here = self.layout
        own = {
            name: total[name]
            for name in (tiny_model.EMBED, tiny_model.HEAD)
            if name in total and here.dp_rank == 0 and (name == tiny_model.HEAD or here.tp_rank == 0)
        }
        reports = self.context.collective.all_gather_object(own)
        whole = sum(report[tiny_model.EMBED] for report in reports if tiny_model.EMBED in report)
        whole = whole + torch.cat([report[tiny_model.HEAD] for report in reports if tiny_model.HEAD in report])
        return {
            name: whole[place.start : place.stop] if place.source == tiny_model.EMBED else total[name]
            for name, place in self.places.items()
        }


def _share(total: int, rank: int, size: int) -> tuple[int, int]:
    """First and one past the last of ``total`` things for ``rank``; earlier ranks take the surplus."""
    each, surplus = divmod(total, size)
    start = rank * each + min(rank, surplus)
    return start, start + each + (rank < surplus)
