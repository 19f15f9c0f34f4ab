"""Training engines that compute the wrong number, or let the wrong rank tell it."""

# A fault's class says what it does wrong; what its methods should do stands in the contract.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
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
)
from rl_core.metrics import Metric
from rl_core.single_controller.base.collective import WorkerContext
from rl_dataproto import DataProto
from rl_dataproto.jagged import Jagged
from torch import Tensor

from rl_testing.contracts.engine_columns import columns
from rl_testing.fakes import tiny_model
from rl_testing.fakes.engine_base import EngineBase
from rl_testing.fakes.micro_batch import MicroBatch, jagged
from rl_testing.fakes.parts import Part, Parts
from rl_testing.fakes.pipeline_engine import PipelineEngine
from rl_testing.fakes.plain_engine import PlainEngine
from rl_testing.faults.fault import Fault


def fault(
    engine: type[EngineBase], name: str, promise: str, caught_by: str, *, world_size: int = 1, **overrides: Any
) -> Fault:
    """A fault that shows with ``world_size`` workers; ``overrides`` are further ones of the suite."""
    found = {"engine_class": engine, "world_sizes": (world_size,), **overrides}
    return Fault(name=name, promise=promise, caught_by=caught_by, overrides=found)


class ShiftedByOne(PlainEngine):
    """Reads each token's log-prob from the logits at the token itself."""

    def output_positions(self, micro: MicroBatch) -> Tensor:
        return micro.position


class WorkKept(PlainEngine):
    """Tells its work again and again."""

    def take_work(self) -> EngineWork | None:
        return self.computed


class RewardShifted(PlainEngine):
    """Makes the shift of values for the reward role too."""

    def output_positions(self, micro: MicroBatch) -> Tensor:
        return micro.position - 1


class TemperatureIgnored(PlainEngine):
    """Scores at temperature 1."""

    def __init__(self, role: EngineRole, model: Any, config: EngineConfig, context: WorkerContext) -> None:
        super().__init__(role, model, replace(config, temperature=1.0), context)


class EntropyOverPadding(PlainEngine):
    """Takes entropies from the end of the padded row, where short rows have padding."""

    def token_outputs(self, parts: Mapping[str, Tensor], hidden: Tensor, micro: MicroBatch) -> dict[str, Tensor]:
        outputs = super().token_outputs(parts, hidden, micro)
        if "entropy" in outputs:
            lengths = torch.tensor(micro.response_lengths, dtype=torch.int64)
            moved = replace(micro, position=micro.ids.shape[1] - lengths[micro.row] + micro.place)
            outputs["entropy"] = super().token_outputs(parts, hidden, moved)["entropy"]
        return outputs


class EntropyOfOneShard(PipelineEngine):
    """Takes the entropy over the rank's own share of the vocabulary."""

    def score_tokens(self, parts: Mapping[str, Tensor], states: Tensor, tokens: Tensor) -> dict[str, Tensor]:
        table = torch.log_softmax(states @ parts[tiny_model.HEAD].T / self.config.temperature, dim=-1)
        return super().score_tokens(parts, states, tokens) | {"entropy": -(table.exp() * table).sum(-1)}


class SquaresAtTemperatureOne(PlainEngine):
    """Leaves the temperature out of the sum of squared probabilities."""

    def score_tokens(self, parts: Mapping[str, Tensor], states: Tensor, tokens: Tensor) -> dict[str, Tensor]:
        probs = torch.softmax(states @ parts[tiny_model.HEAD].T, dim=-1)
        return super().score_tokens(parts, states, tokens) | {"sum_pi_squared": probs.detach().square().sum(-1)}


class SquaresOfOneShard(PipelineEngine):
    """Sums squared probabilities over the rank's own share of the vocabulary."""

    def score_tokens(self, parts: Mapping[str, Tensor], states: Tensor, tokens: Tensor) -> dict[str, Tensor]:
        scores = super().score_tokens(parts, states, tokens)
        own = torch.softmax(states @ parts[tiny_model.HEAD].T / self.config.temperature, dim=-1)
        return scores | {"sum_pi_squared": own.detach().square().sum(-1)}


class OneTokenAtLeast(PlainEngine):
    """Returns a number for a row that has no response."""

    def put_rows(self, rows: list[Tensor], micro: MicroBatch, per_token: Tensor) -> None:
        super().put_rows(rows, micro, per_token)
        for index in micro.indices:
            rows[index] = rows[index] if len(rows[index]) else torch.zeros(1, dtype=torch.float64)


class UnknownOutputsLeftOut(PlainEngine):
    """Returns what it has of what was asked."""

    def known_outputs(self, outputs: Collection[str]) -> frozenset[str]:
        return super().known_outputs(set(outputs) & {"log_probs", "entropy", "sum_pi_squared"} or {"log_probs"})


class AdapterWithoutAdapter(PlainEngine):
    """Halves the embedding where it should switch off an adapter that it has not."""

    @contextmanager
    def disable_adapter(self) -> Iterator[None]:
        embedding = self.parameters("disable_adapter")[tiny_model.EMBED]
        embedding.mul_(0.5)
        yield
        embedding.mul_(2)


class PackedOrder(PlainEngine):
    """Returns rows in the order in which they were packed."""

    def put_rows(self, rows: list[Tensor], micro: MicroBatch, per_token: Tensor) -> None:
        free = [number for number, row in enumerate(rows) if not len(row)]
        super().put_rows(rows, replace(micro, indices=free[: len(micro.indices)]), per_token)


class EveryRankAnswers(PipelineEngine):
    """Returns zeros where it should return None."""

    def forward(self, batch: DataProto, outputs: Collection[str]) -> DataProto | None:
        result = super().forward(batch, outputs)
        if result is not None:
            return result
        zeros = [torch.zeros(len(row)) for row in Jagged.of(columns(batch)["responses"]).rows()]
        return DataProto.from_dict(tensors={name: jagged(zeros, torch.float64) for name in outputs})


class EmptyRanksLeave(PlainEngine):
    """Takes no part in collectives while it has no rows."""

    def meet(self, micro: MicroBatch) -> None:
        if not micro.is_empty:
            super().meet(micro)


class EmptyRanksTrain(PlainEngine):
    """Has a gradient while it has no rows."""

    def compute_and_accumulate(self, micro: MicroBatch, loss_fn: LossFunction) -> dict[str, Metric] | None:
        if micro.is_empty:
            leaves = self.leaves()
            self.accumulate(list(leaves), [torch.ones_like(leaf) for leaf in leaves.values()])
        return super().compute_and_accumulate(micro, loss_fn)


class ScoreHeadFrozen(PlainEngine):
    """Does not train the score head."""

    def accumulate(self, names: Sequence[str], gradients: Sequence[Tensor | None]) -> None:
        kept = [None if name == tiny_model.SCORE else one for name, one in zip(names, gradients, strict=True)]
        super().accumulate(names, kept)


class DividesByItsTokens(PlainEngine):
    """Takes the mean of a micro-batch, and scales it back."""

    def loss(
        self, micro: MicroBatch, outputs: Mapping[str, Tensor], loss_fn: LossFunction
    ) -> tuple[Tensor, dict[str, Metric]]:
        loss, metrics = super().loss(micro, outputs, loss_fn)
        scaled = loss / micro.mask.sum() * micro.mask.sum()
        return scaled, {**metrics, "loss": Metric(float(scaled.detach()), "sum", keep_nan=True)}


class NormaliserPerMicroBatch(PlainEngine):
    """Divides by the tokens of the micro-batch."""

    def loss(
        self, micro: MicroBatch, outputs: Mapping[str, Tensor], loss_fn: LossFunction
    ) -> tuple[Tensor, dict[str, Metric]]:
        local: Any = replace(loss_fn, num_tokens=max(1, int(micro.mask.sum())))  # type: ignore[type-var]
        return super().loss(micro, outputs, local)


class MicroBatchesAveraged(PlainEngine):
    """Divides each micro-batch's gradient by their number."""

    number = 1

    def micro_batches(self, batch: DataProto, size: int | None, budget: int | None) -> Iterator[MicroBatch]:
        pieces = list(super().micro_batches(batch, size, budget))
        self.number = max(1, len(pieces))
        yield from pieces

    def accumulate(self, names: Sequence[str], gradients: Sequence[Tensor | None]) -> None:
        super().accumulate(names, [None if gradient is None else gradient / self.number for gradient in gradients])


class RanksAveraged(PlainEngine):
    """Averages gradients over ranks."""

    def reduce_gradients(self, gradients: Parts) -> Parts:
        total = super().reduce_gradients(gradients)
        return {name: gradient / self.context.world_size for name, gradient in total.items()}


class TiedGradientOfOneUse(PipelineEngine):
    """Keeps the two gradients of a tied tensor apart."""

    def reduce_gradients(self, gradients: Parts) -> Parts:
        tiny, self.tiny = self._require_initialized("optimizer_step"), None
        self.tiny = replace(tiny, tie_word_embeddings=False)
        total = super().reduce_gradients(gradients)
        self.tiny = tiny
        return total


class TiedNormCountedTwice(PipelineEngine):
    """Counts a tied tensor on both stages in the norm."""

    def place(self, name: str, rank: int) -> Part | None:
        part = super().place(name, rank)
        return None if part is None else replace(part, is_copy=False)


class GradientsKept(PlainEngine):
    """Does not clear the gradients after a step."""

    def optimizer_step(self) -> StepResult:
        kept = dict(self.states.get(EngineState.GRADIENTS, "optimizer_step"))
        result = super().optimizer_step()
        self.states.put(EngineState.GRADIENTS, kept)
        return result


class NonFiniteApplied(PlainEngine):
    """Applies whatever gradient there is."""

    def may_apply(self, norm: float) -> bool:
        return True


class ClippedTooLate(PlainEngine):
    """Clips what has been applied already."""

    def clip(self, gradients: Parts, norm: float) -> Parts:
        return gradients


class ClippedByTensor(PlainEngine):
    """Clips each tensor by its own norm."""

    def clip(self, gradients: Parts, norm: float) -> Parts:
        clipped: Parts = {}
        for name, gradient in gradients.items():
            clipped |= super().clip({name: gradient}, float(gradient.norm()))
        return clipped


class ScheduleStandsStill(PlainEngine):
    """Tells the new rate, and applies the old one."""

    def lr_scheduler_step(self) -> float:
        told = super().lr_scheduler_step()
        self.schedule_step -= 1
        return told


class LossSeesEverything(PlainEngine):
    """Hands the loss function outputs that it did not ask for."""

    def loss(
        self, micro: MicroBatch, outputs: Mapping[str, Tensor], loss_fn: LossFunction
    ) -> tuple[Tensor, dict[str, Metric]]:
        seen = {name: micro.padded(tensor) for name, tensor in outputs.items()}
        loss, metrics = loss_fn(TokenOutputs(micro.response_mask(), **seen), micro.rows())
        return loss, {**metrics, "loss": Metric(float(loss.detach()), "sum")}


class LastMetricsOnly(PlainEngine):
    """Reports the metrics of the last micro-batch."""

    def forward_backward(self, batch: DataProto, loss_fn: LossFunction) -> Mapping[str, Metric] | None:
        self.latest: dict[str, Metric] = {}
        super().forward_backward(batch, loss_fn)
        return self.latest

    def loss(
        self, micro: MicroBatch, outputs: Mapping[str, Tensor], loss_fn: LossFunction
    ) -> tuple[Tensor, dict[str, Metric]]:
        loss, self.latest = super().loss(micro, outputs, loss_fn)
        return loss, self.latest


class UnitsTornApart(PlainEngine):
    """Cuts rows one by one, whatever belongs together."""

    def micro_batches(self, batch: DataProto, size: int | None, budget: int | None) -> Iterator[MicroBatch]:
        torn = batch.select()
        torn.meta_info.pop(ROWS_TOGETHER_KEY, None)
        yield from super().micro_batches(torn, size, budget)


class WritesIntoInput(PlainEngine):
    """Leaves a note in the batch it was given."""

    def forward(self, batch: DataProto, outputs: Collection[str]) -> DataProto | None:
        columns(batch)["num_tokens"] = torch.zeros(len(batch))
        return super().forward(batch, outputs)


_LOG_PROBS = "test_log_probs_are_those_of_the_sampled_tokens"
_ENTROPY = "test_entropy_is_that_of_the_distribution_drawn_from"
_SQUARES = "test_sums_of_squares_are_those_of_the_distribution_drawn_from"
_SUMS = "test_gradients_are_sums"
_TIED = "test_gradients_of_tied_weights_count_both_uses"
_CLIP = "test_gradients_are_clipped_before_the_step"

FAULTS = (
    fault(ShiftedByOne, "log-prob-shifted-by-one", "token t is predicted from position t - 1", _LOG_PROBS),
    fault(TemperatureIgnored, "temperature-ignored", "logits are divided by the temperature", _LOG_PROBS),
    fault(ShiftedByOne, "value-shifted-by-one", "a value is that before its token", "test_values_are_those_before_each_token"),
    fault(RewardShifted, "reward-shifted-by-one", "a score is that of the sequence with its token",
          "test_a_reward_model_judges_what_it_has_read"),
    fault(EntropyOverPadding, "entropy-over-padding", "entropy never depends on padding", _ENTROPY),
    fault(EntropyOfOneShard, "entropy-of-one-shard", "entropy is over the whole vocabulary", _ENTROPY, world_size=2,
          layout={"vocab_parallel_size": 2}),
    fault(SquaresAtTemperatureOne, "squares-at-temperature-one", "squared probabilities are those at the temperature",
          _SQUARES),
    fault(SquaresOfOneShard, "squares-of-one-shard", "squared probabilities are summed over the whole vocabulary", _SQUARES,
          world_size=2, layout={"vocab_parallel_size": 2}),
    fault(WorkKept, "work-told-twice", "work is told once", "test_work_is_counted_once"),
    fault(OneTokenAtLeast, "one-token-at-least", "outputs have the shape of the responses",
          "test_outputs_have_the_shape_of_the_responses"),
    fault(UnknownOutputsLeftOut, "unknown-outputs-left-out", "unknown outputs are refused",
          "test_unknown_outputs_are_refused"),
    fault(AdapterWithoutAdapter, "adapter-without-adapter", "without an adapter, switching it off changes nothing",
          "test_disabling_an_absent_adapter_changes_nothing"),
    fault(PackedOrder, "rows-in-packed-order", "rows come back in the order they came in",
          "test_rows_come_back_in_order_however_they_are_packed"),
    fault(EveryRankAnswers, "wrong-rank-answers", "only collecting ranks answer", "test_only_collecting_ranks_answer",
          world_size=2),
    fault(EmptyRanksLeave, "empty-rank-skips-a-collective", "ranks without rows meet in every collective",
          "test_ranks_without_rows_still_meet_the_others", world_size=2, timeout_s=1.0),
    fault(EmptyRanksTrain, "empty-rank-has-a-gradient", "a rank without rows adds zero",
          "test_ranks_without_rows_join_the_update", world_size=2),
    fault(ScoreHeadFrozen, "score-head-frozen", "the score head is trained", "test_gradients_of_a_value_model"),
    fault(DividesByItsTokens, "divides-by-its-tokens", "a masked micro-batch is finite",
          "test_a_masked_micro_batch_adds_nothing"),
    fault(NormaliserPerMicroBatch, "normaliser-per-micro-batch", "normalisers are those of the whole mini-batch", _SUMS),
    fault(MicroBatchesAveraged, "micro-batches-averaged", "gradients are sums over micro-batches", _SUMS),
    fault(RanksAveraged, "ranks-averaged", "gradients are sums over ranks", _SUMS, world_size=2),
    fault(TiedGradientOfOneUse, "tied-gradient-of-one-use", "both uses of a tied tensor add to its gradient", _TIED,
          world_size=2),
    fault(TiedNormCountedTwice, "tied-norm-counted-twice", "the norm counts a tied tensor once", _TIED, world_size=2),
    fault(GradientsKept, "gradients-kept", "a step clears the gradients", "test_gradients_accumulate_over_calls"),
    fault(NonFiniteApplied, "non-finite-step-applied", "a non-finite gradient changes nothing",
          "test_a_non_finite_gradient_changes_nothing"),
    fault(ClippedTooLate, "clip-after-step", "gradients are clipped before they are applied", _CLIP),
    fault(ClippedByTensor, "clip-by-tensor", "the norm that is clipped is that of all tensors", _CLIP),
    fault(ScheduleStandsStill, "schedule-stands-still", "the told learning rate is applied", "test_the_schedule_is_applied"),
    fault(LossSeesEverything, "loss-sees-everything", "a loss function sees what it asked for",
          "test_the_loss_function_gets_what_it_asked_for"),
    fault(LastMetricsOnly, "metrics-of-the-last-micro-batch", "metrics add up over micro-batches",
          "test_metrics_add_up_over_micro_batches"),
    fault(UnitsTornApart, "units-torn-apart", "rows that belong together stay together",
          "test_rows_that_belong_together_meet_in_the_loss"),
    fault(WritesIntoInput, "writes-into-its-input", "input is read-only", "test_input_stays_as_it_was"),
)  # fmt: skip
"""Engines that break a promise about forward, gradients or steps."""
