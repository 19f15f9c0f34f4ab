"""The part of the engine suite about losses, gradients and steps."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from rl_core.contracts.engine import ROWS_TOGETHER_KEY, EngineRole
from rl_dataproto import DataProto
from torch import Tensor

from rl_testing.contracts import engine_calls as calls
from rl_testing.contracts.engine_batch import Row, as_batch, num_tokens, slow_policy_loss, slow_sgd, slow_value_loss
from rl_testing.contracts.engine_losses import ExplodingLoss, PolicyLoss, ValueLoss
from rl_testing.contracts.engine_suite import ADAM, SGD, EngineSuite, same_bits

CUTS: list[dict[str, Any]] = [{}, {"micro_batch_size": 1}, {"micro_batch_size": 2}, {"max_tokens": 9}]


class GradientsContract(EngineSuite):
    """Gradients are sums, whatever cut the work."""

    def start_and_weights(self, world_size: int, **options: Any) -> tuple[Any, dict[str, Tensor]]:
        """Engines and their first weights."""
        ranks = self.start(world_size, **options)
        return ranks, self.weights(ranks)

    def check_steps(self, ranks: Any, slow: list[Any], steps: list[list[calls.Step]]) -> None:
        """Losses and norms of every step, and the weights after the last."""
        for number, expected in enumerate(slow):
            here = [rank_steps[number] for rank_steps in steps]
            self.assert_close(calls.summed([step.metrics for step in here], "loss"), expected.loss, f"loss {number}")
            for step in here:
                self.assert_close(step.result.grad_norm, expected.grad_norm, f"grad_norm {number}")
                assert not step.result.skipped
        self.assert_close(self.weights(ranks), slow[-1].weights, "weights")

    @pytest.mark.parametrize("cut", CUTS)
    def test_gradients_are_sums(self, world_size: int, cut: dict[str, Any], rows: list[Row], batch: DataProto) -> None:
        """Loss, gradient norm and weights over three SGD steps equal those of the slow reference on all rows at once.

        If this fails: gradients are averaged over ranks or micro-batches, a normaliser is taken from a micro-batch, a
        sequence is counted on more than one rank of a pipeline, or the norm counts a replicated tensor twice.
        """
        ranks, weights = self.start_and_weights(world_size, temperature=0.7, **cut)
        loss = partial(slow_policy_loss, self.reference_logits, rows=rows, temperature=0.7)
        slow = slow_sgd(loss, weights, lr=SGD.lr, steps=3)
        steps = self.ask(ranks, calls.train, batches=[batch] * 3, loss_fn=PolicyLoss(num_tokens(rows)))
        self.check_steps(ranks, slow, steps)

    def test_gradients_of_tied_weights_count_both_uses(
        self, world_size: int, rows: list[Row], batch: DataProto
    ) -> None:
        """With tied embeddings, both uses add to one gradient, and the two ends of a pipeline stay equal.

        If this fails: the stages that hold the tied tensor do not exchange its gradient, or the norm counts it twice.
        """
        if not self.supports_tied_weights:
            return
        ranks, weights = self.start_and_weights(world_size, model=self.model_section(tied=True), micro_batch_size=2)
        loss = partial(slow_policy_loss, self.reference_logits, rows=rows, temperature=1.0)
        slow = slow_sgd(loss, weights, lr=SGD.lr, steps=2)
        steps = self.ask(ranks, calls.train, batches=[batch] * 2, loss_fn=PolicyLoss(num_tokens(rows)))
        self.check_steps(ranks, slow, steps)
        found = self.scores(ranks, batch, {"log_probs"})["log_probs"]
        self.assert_close(found, self.reference_columns(slow[-1].weights, rows)["log_probs"], "log_probs")

    def test_gradients_of_a_value_model(self, world_size: int, rows: list[Row], batch: DataProto) -> None:
        """The same sums for the value role.

        If this fails: see ``test_gradients_are_sums``; the score head is a parameter like any other.
        """
        if not self.supports_value_role:
            return
        ranks, weights = self.start_and_weights(world_size, role=EngineRole.VALUE, micro_batch_size=2)
        slow = slow_sgd(partial(slow_value_loss, self.reference_values, rows=rows), weights, lr=SGD.lr, steps=3)
        steps = self.ask(ranks, calls.train, batches=[batch] * 3, loss_fn=ValueLoss(num_tokens(rows)))
        self.check_steps(ranks, slow, steps)

    def test_gradients_accumulate_over_calls(self, world_size: int, rows: list[Row], batch: DataProto) -> None:
        """Two ``forward_backward`` before a step give the gradient of both; a step clears it.

        If this fails: a call overwrites what the last one left, or the step does not clear it.
        """
        ranks, weights = self.start_and_weights(world_size)
        loss_fn = PolicyLoss(num_tokens(rows))
        for half in (range(3), range(3, 7)):
            self.ask(ranks, calls.accumulate, batch=batch.select_idxs(list(half)), loss_fn=loss_fn)
        results = self.ask(ranks, calls.step)
        loss = partial(slow_policy_loss, self.reference_logits, rows=rows, temperature=1.0)
        (slow,) = slow_sgd(loss, weights, lr=SGD.lr, steps=1)
        self.assert_close([result.grad_norm for result in results], [slow.grad_norm] * world_size, "grad_norm")
        assert {result.grad_norm for result in self.ask(ranks, calls.step)} == {0.0}
        self.assert_close(self.weights(ranks), slow.weights, "weights")

    @pytest.mark.parametrize("num_rows", [0, 1, 3])
    def test_ranks_without_rows_join_the_update(self, world_size: int, num_rows: int, rows: list[Row]) -> None:
        """With fewer rows than ranks, the update is that of the rows there are.

        If this fails: a rank without rows leaves out a collective, or contributes something other than zero.
        """
        few = rows[:num_rows]
        ranks, weights = self.start_and_weights(world_size, micro_batch_size=1)
        batch = as_batch(rows).select_idxs(list(range(num_rows)))
        steps = self.ask(ranks, calls.train, batches=[batch], loss_fn=PolicyLoss(max(num_tokens(few), 1)))
        if not few:
            assert [step.result.grad_norm for (step,) in steps] == [0.0] * world_size
            assert calls.summed([step.metrics for (step,) in steps], "loss") == 0.0
            return
        loss = partial(slow_policy_loss, self.reference_logits, rows=few, temperature=1.0)
        self.check_steps(ranks, slow_sgd(loss, weights, lr=SGD.lr, steps=1), steps)

    def test_a_masked_micro_batch_adds_nothing(self, world_size: int, rows: list[Row]) -> None:
        """Micro-batches whose every token is masked have a finite loss of 0 and no gradient; collectives stay aligned.

        If this fails: something is divided by the tokens of a micro-batch (0 / 0), or a rank leaves out the backward
        pass, with its collectives, because there is nothing to learn.
        """
        masked = [replace(row, mask=torch.zeros_like(row.mask)) for row in rows]
        mixed = [row if number % 3 == 0 else masked[number] for number, row in enumerate(rows)]
        ranks, weights = self.start_and_weights(world_size, micro_batch_size=1)
        all_masked = self.ask(ranks, calls.train, batches=[as_batch(masked)], loss_fn=PolicyLoss(1))
        assert [step.result.grad_norm for (step,) in all_masked] == [0.0] * world_size
        assert calls.summed([step.metrics for (step,) in all_masked], "loss") == 0.0
        loss = partial(slow_policy_loss, self.reference_logits, rows=mixed, temperature=1.0)
        slow = slow_sgd(loss, weights, lr=SGD.lr, steps=1)
        steps = self.ask(ranks, calls.train, batches=[as_batch(mixed)], loss_fn=PolicyLoss(num_tokens(mixed)))
        self.check_steps(ranks, slow, steps)

    def test_the_loss_function_gets_what_it_asked_for(self, world_size: int, rows: list[Row], batch: DataProto) -> None:
        """It sees per-token outputs with gradient, right-padded to the longest response, of the rows it is given.

        If this fails: the loss function is called with logits, with outputs it did not ask for, with rows that do not
        belong to the outputs, more than once a micro-batch, or on ranks whose result would be counted twice.
        """
        for outputs in (frozenset({"log_probs"}), frozenset({"log_probs", "entropy"})):
            ranks = self.start(world_size, micro_batch_size=2)
            reports = self.ask(ranks, calls.record_losses, batch=batch, outputs=outputs)
            seen: list[int] = []
            for info, recorded, metrics in reports:
                if info.is_collect:
                    seen += [row for call in recorded for row in call.row_ids]
                    assert metrics is not None
                    assert calls.summed([metrics], "rows") == sum(len(call.row_ids) for call in recorded)
                for call in recorded:
                    self._check_call(call, rows, outputs)
            assert sorted(seen) == list(range(len(rows)))

    def _check_call(self, call: Any, rows: list[Row], outputs: frozenset[str]) -> None:
        mine = [rows[number] for number in call.row_ids]
        assert 1 <= len(mine) <= 2
        assert call.given == call.requires_grad == outputs
        assert call.attributes == (), "a loss function must not see logits"
        width = max(len(row.response) for row in mine)
        assert set(call.shapes.values()) == {(len(mine), width)}
        assert call.mask.dtype == torch.bool
        expected = torch.zeros(len(mine), width, dtype=torch.bool)
        for number, row in enumerate(mine):
            expected[number, : len(row.mask)] = row.mask
        assert torch.equal(call.mask, expected)
        assert call.response_lengths == [len(row.response) for row in mine]

    @pytest.mark.parametrize("cut", [{"micro_batch_size": 1}, {"micro_batch_size": 3}, {"max_tokens": 12}])
    def test_rows_that_belong_together_meet_in_the_loss(
        self, world_size: int, cut: dict[str, Any], rows: list[Row]
    ) -> None:
        """With ``ROWS_TOGETHER_KEY``, every unit of rows is whole and in order in the micro-batch of one call.

        If this fails: rows are cut one by one, so that a loss over pairs would compare a row with a stranger.
        """
        pairs = (rows * 2)[:8] * world_size
        batch = as_batch(pairs)
        batch.meta_info[ROWS_TOGETHER_KEY] = 2
        ranks = self.start(world_size, **cut)
        reports = self.ask(ranks, calls.record_losses, batch=batch, outputs=frozenset({"log_probs"}))
        seen: list[int] = []
        for info, recorded, _ in reports:
            for call in recorded:
                firsts, seconds = call.row_ids[::2], call.row_ids[1::2]
                assert all(first % 2 == 0 for first in firsts), call.row_ids
                assert seconds == [first + 1 for first in firsts], call.row_ids
                assert len(firsts) == 1 or "max_tokens" in cut, "a size of 1 or 3 rows holds one pair"
                seen += call.row_ids if info.is_collect else []
        assert sorted(seen) == list(range(len(pairs)))

    def test_metrics_add_up_over_micro_batches(self, world_size: int, rows: list[Row], batch: DataProto) -> None:
        """Metrics of the loss function are combined as each says, and do not depend on the cut.

        If this fails: the engine keeps the last micro-batch's metrics, or averages shares.
        """
        ranks, weights = self.start_and_weights(world_size, micro_batch_size=1)
        reports = self.ask(ranks, calls.accumulate, batch=batch, loss_fn=PolicyLoss(num_tokens(rows)))
        entropies = self.reference_columns(weights, rows)["entropy"]
        expected = sum(float(entropy[row.mask].sum()) for entropy, row in zip(entropies, rows, strict=True))
        metrics = [report for _, report in reports]
        self.assert_close(calls.summed(metrics, "entropy"), expected / num_tokens(rows), "entropy")
        longest = max(report["longest"].value for report in metrics if report and "longest" in report)
        assert longest == max(int(row.mask.sum()) for row in rows)

    def test_a_non_finite_gradient_changes_nothing(self, world_size: int, rows: list[Row], batch: DataProto) -> None:
        """One rank's infinite gradient is skipped on all ranks; weights and optimizer state stay, the gradient goes.

        If this fails: the update is applied, only some ranks skip it, the bad gradient stays accumulated, or the
        optimizer counts the step.
        """
        tokens = num_tokens(rows)
        ranks, before = self.start_and_weights(world_size, optim=ADAM)
        marked = as_batch(rows, marked=[1])
        skipped = self.ask(ranks, calls.train, batches=[marked], loss_fn=ExplodingLoss(tokens))
        assert all(step.result.skipped and not math.isfinite(step.result.grad_norm) for (step,) in skipped)
        assert same_bits(self.weights(ranks), before) == []
        good = self.ask(ranks, calls.train, batches=[batch], loss_fn=PolicyLoss(tokens))
        assert not any(step.result.skipped for (step,) in good)
        untouched = self.start(world_size, optim=ADAM)
        self.ask(untouched, calls.train, batches=[batch], loss_fn=PolicyLoss(tokens))
        self.assert_close(self.weights(ranks), self.weights(untouched), "weights after the next good step")

    def test_gradients_are_clipped_before_the_step(self, world_size: int, rows: list[Row], batch: DataProto) -> None:
        """A gradient above ``grad_clip`` is scaled to it, over all parameters and ranks; the norm told is the raw one.

        If this fails: clipping happens after the step, per rank or per tensor, or the clipped norm is reported.
        """
        loss = partial(slow_policy_loss, self.reference_logits, rows=rows, temperature=1.0)
        _, weights = self.start_and_weights(world_size)
        (slow,) = slow_sgd(loss, weights, lr=SGD.lr, steps=1)
        for limit in (0.25 * slow.grad_norm, 4 * slow.grad_norm):
            ranks = self.start(world_size, grad_clip=limit)
            steps = self.ask(ranks, calls.train, batches=[batch], loss_fn=PolicyLoss(num_tokens(rows)))
            self.assert_close([step.result.grad_norm for (step,) in steps], [slow.grad_norm] * world_size, "grad_norm")
            scale = min(1.0, limit / slow.grad_norm)
            expected = {name: weights[name] + scale * (slow.weights[name] - weights[name]) for name in weights}
            # torch's clipping adds 1e-6 to the norm.
            for name, tensor in self.weights(ranks).items():
                torch.testing.assert_close(
                    tensor.double(), expected[name].double(), rtol=max(self.rtol, 1e-5), atol=1e-6
                )

    def test_the_schedule_is_applied(self, world_size: int, rows: list[Row], batch: DataProto) -> None:
        """The rate of a step is the one told, rises in the warm-up, falls to its floor, and starts again nowhere.

        If this fails: the schedule is advanced by micro-batches or optimizer steps, or not at all; or the told rate
        is not the one in use.
        """
        optim = replace(SGD, lr_scheduler_type="cosine", lr_warmup_steps=2, min_lr_ratio=0.1)
        ranks = self.start(world_size, optim=optim, total_training_steps=6)
        loss = partial(slow_policy_loss, self.reference_logits, rows=rows, temperature=1.0)
        rates: list[float] = []
        for _ in range(8):
            before = self.weights(ranks)
            steps = [
                step for (step,) in self.ask(ranks, calls.train, batches=[batch], loss_fn=PolicyLoss(num_tokens(rows)))
            ]
            assert len({(step.result.learning_rate, step.next_learning_rate) for step in steps}) == 1
            if rates:
                assert steps[0].result.learning_rate == rates[-1]
            (slow,) = slow_sgd(loss, before, lr=steps[0].result.learning_rate, steps=1)
            self.assert_close(self.weights(ranks), slow.weights, "weights after a step of the told rate")
            rates.append(steps[0].next_learning_rate)
        assert rates[0] < rates[1] == pytest.approx(optim.lr)
        assert all(later < earlier for earlier, later in pairwise(rates[1:6]))
        assert rates[5:] == pytest.approx([0.1 * optim.lr] * 3)

    def test_input_stays_as_it_was(self, world_size: int, rows: list[Row], batch: DataProto) -> None:
        """Nothing is written into the batch: what comes out of an object store is read-only.

        If this fails: the engine pads, sorts, moves or annotates its input in place.
        """
        ranks = self.start(world_size, micro_batch_size=2)
        changed = self.ask(
            ranks,
            calls.writes_into_input,
            batch=batch,
            outputs=frozenset({"log_probs"}),
            loss_fn=PolicyLoss(num_tokens(rows)),
        )
        assert changed == [[]] * world_size
