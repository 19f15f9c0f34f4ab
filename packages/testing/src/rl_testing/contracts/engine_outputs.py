"""The part of the engine suite about ``forward``."""

from __future__ import annotations

import pytest
import torch
from rl_core.contracts.engine import EngineRole
from rl_core.errors import ConfigError, RlError
from rl_dataproto import DataProto

from rl_testing.contracts import engine_calls as calls
from rl_testing.contracts.engine_batch import Row, as_batch, num_tokens
from rl_testing.contracts.engine_losses import PolicyLoss, ValueLoss
from rl_testing.contracts.engine_suite import EngineSuite


class OutputsContract(EngineSuite):
    """Log-probs, entropy, sums of squared probabilities, and values."""

    @pytest.mark.parametrize("temperature", [1.0, 0.7])
    def test_log_probs_are_those_of_the_sampled_tokens(
        self, world_size: int, temperature: float, rows: list[Row], batch: DataProto
    ) -> None:
        """Log-probs equal those of a slow reference on the streamed weights, at the sampling temperature.

        If this fails: check that row t of the logits is gathered at token t + 1, that the logits are divided by
        ``config.temperature``, and that the stream holds the weights that computed the log-probs.
        """
        ranks = self.start(world_size, temperature=temperature)
        found = self.scores(ranks, batch, {"log_probs"})["log_probs"]
        expected = self.reference_columns(self.weights(ranks), rows, temperature)["log_probs"]
        self.assert_close(found, expected, "log_probs")

    @pytest.mark.parametrize("temperature", [1.0, 2.0])
    def test_entropy_is_that_of_the_distribution_drawn_from(
        self, world_size: int, temperature: float, rows: list[Row], batch: DataProto
    ) -> None:
        """Entropy of each response token's distribution, over the whole vocabulary, and nothing of padding.

        If this fails: check the same shift and temperature as for log-probs; on a sharded vocabulary, that the sum
        runs over all shards; in padded or packed micro-batches, that each row's own positions are read.
        """
        ranks = self.start(world_size, temperature=temperature)
        found = self.scores(ranks, batch, {"entropy"})["entropy"]
        self.assert_close(found, self.reference_columns(self.weights(ranks), rows, temperature)["entropy"], "entropy")

    @pytest.mark.parametrize("temperature", [1.0, 2.0])
    def test_sums_of_squares_are_those_of_the_distribution_drawn_from(
        self, world_size: int, temperature: float, rows: list[Row], batch: DataProto
    ) -> None:
        """Sum over the whole vocabulary of the squared probabilities that each response token was drawn with.

        If this fails: check the same shift and temperature as for log-probs; on a sharded vocabulary, that the
        normaliser and the sum run over all shards.
        """
        ranks = self.start(world_size, temperature=temperature)
        found = self.scores(ranks, batch, {"sum_pi_squared"})["sum_pi_squared"]
        expected = self.reference_squares(self.weights(ranks), rows, temperature)
        self.assert_close(found, expected, "sum_pi_squared")

    def test_work_is_counted_once(self, world_size: int, rows: list[Row], batch: DataProto) -> None:
        """``take_work`` counts the tokens of every row once for each pass, and forgets what it has told.

        An engine that does not count answers None. If this fails: check that micro-batches which only make ranks meet count
        for nothing, and that ``take_work`` starts anew.
        """
        ranks = self.start(world_size)
        loss = PolicyLoss(num_tokens(rows))
        answers = self.ask(ranks, calls.work_of, batch=batch, loss_fn=loss, outputs={"log_probs"})
        told = [work for info, work in answers if info.is_collect]
        if any(work is None for passes in told for work in passes):
            assert all(work is None for passes in told for work in passes), "counted in some passes only"
            return
        expected = sum(len(row.prompt) + len(row.response) for row in rows)
        passes = list(zip(*told, strict=True))
        assert [sum(work.tokens for work in each) for each in passes] == [0, expected, expected, 0]
        assert all(work.computed_tokens >= work.tokens for each in passes for work in each)
        flops = [[work.flops for work in each] for each in passes]
        if None not in flops[1]:
            assert sum(flops[1]) < sum(flops[2]) <= 3.0001 * sum(flops[1]), "a gradient costs at most two more passes"

    def test_values_are_those_before_each_token(self, world_size: int, rows: list[Row], batch: DataProto) -> None:
        """A value engine estimates the state in which each response token is chosen.

        If this fails: check that the value of a token is read one position before it, as its log-prob is; that the
        score head is trained and streamed like any other weight.
        """
        if not self.supports_value_role:
            return
        ranks = self.start(world_size, role=EngineRole.VALUE)
        self.ask(ranks, calls.train, batches=[batch] * 2, loss_fn=ValueLoss(num_tokens(rows)))
        found = self.scores(ranks, batch, {"values"})["values"]
        assert any(bool(row.abs().max() > 0) for row in found if len(row)), "two updates left every value at 0"
        self.assert_close(found, self.reference_value_rows(self.weights(ranks), rows), "values")

    def test_a_reward_model_judges_what_it_has_read(self, world_size: int, rows: list[Row], batch: DataProto) -> None:
        """A reward engine's output on a token is the score of the sequence up to and with that token.

        If this fails: check that the shift of values is not made for the reward role: the last response token's
        entry must be the score of the whole sequence.
        """
        if not self.supports_reward_role:
            return
        ranks = self.start(world_size, role=EngineRole.REWARD)
        self.ask(ranks, calls.train, batches=[batch] * 2, loss_fn=ValueLoss(num_tokens(rows)))
        found = self.scores(ranks, batch, {"values"})["values"]
        weights = self.weights(ranks)
        with torch.no_grad():
            expected = [self.reference_values(weights, row.ids)[len(row.prompt) :] for row in rows]
        self.assert_close(found, expected, "values")

    def test_outputs_have_the_shape_of_the_responses(self, world_size: int, rows: list[Row], batch: DataProto) -> None:
        """Exactly the asked columns come back, jagged like ``responses``, in floating point of 32 bits or more.

        If this fails: the engine returns padding, leaves out rows without a response, or returns what was not asked.
        """
        ranks = self.start(world_size)
        for outputs in ({"log_probs"}, {"log_probs", "entropy"}, {"log_probs", "sum_pi_squared"}):
            found = self.scores(ranks, batch, outputs)
            assert set(found) == outputs
            for name, column in found.items():
                assert [len(row) for row in column] == [len(row.response) for row in rows], name
                assert {row.dtype for row in column} <= {torch.float32, torch.float64}, name

    @pytest.mark.parametrize("limits", [{"forward_micro_batch_size": 2}, {"forward_max_tokens": 9}])
    def test_rows_come_back_in_order_however_they_are_packed(
        self, world_size: int, limits: dict[str, int], batch: DataProto
    ) -> None:
        """Micro-batches and token budgets change neither the numbers nor the order of rows.

        If this fails: rows that were sorted or packed by length are not put back, or a sequence sees its neighbours
        in a packed micro-batch.
        """
        expected = self.scores(self.start(self.world_sizes[0]), batch, {"log_probs", "entropy"})
        found = self.scores(self.start(world_size, **limits), batch, {"log_probs", "entropy"})
        self.assert_close(found, expected, f"forward with {limits}")

    def test_only_collecting_ranks_answer(self, world_size: int, rows: list[Row], batch: DataProto) -> None:
        """Each data-parallel rank has exactly one collecting rank; all others return None.

        If this fails: a rank of a pipeline or tensor-parallel group returns data without ``is_collect``, so the
        controller would count rows twice; or ``dispatch_info`` numbers the data-parallel ranks with gaps.
        """
        ranks = self.start(world_size)
        infos = self.ask(ranks, calls.dispatch_info)
        dp_size = infos[0].dp_size
        assert {info.dp_size for info in infos} == {dp_size}
        assert sorted(info.dp_rank for info in infos if info.is_collect) == list(range(dp_size))
        assert {info.dp_rank for info in infos} == set(range(dp_size))
        answers = self.ask(ranks, calls.forward, batch=batch, outputs=frozenset({"log_probs"}))
        assert [answer.columns is not None for answer in answers] == [info.is_collect for info in infos]
        reports = self.ask(ranks, calls.accumulate, batch=batch, loss_fn=PolicyLoss(num_tokens(rows)))
        assert [metrics is not None for _, metrics in reports] == [info.is_collect for info in infos]

    @pytest.mark.parametrize("num_rows", [0, 1])
    def test_ranks_without_rows_still_meet_the_others(self, world_size: int, num_rows: int, rows: list[Row]) -> None:
        """With fewer rows than ranks, or none at all, ``forward`` returns what there is and nobody waits forever.

        If this fails: ranks disagree on the number of micro-batches, so one leaves while others wait in a collective.
        A rank with fewer micro-batches must run empty ones.
        """
        ranks = self.start(world_size, forward_micro_batch_size=1)
        found = self.scores(ranks, as_batch(rows).select_idxs(list(range(num_rows))), {"log_probs"})
        expected = self.reference_columns(self.weights(ranks), rows[:num_rows])["log_probs"]
        self.assert_close(found["log_probs"], expected, "log_probs")

    def test_a_reference_engine_scores_and_never_trains(
        self, world_size: int, rows: list[Row], batch: DataProto
    ) -> None:
        """The reference role has log-probs, starts from the policy's weights, and refuses updates.

        If this fails: the reference loads other weights than the policy, or allocates an optimizer without ``optim``.
        """
        expected = self.scores(self.start(world_size), batch, {"log_probs"})
        ranks = self.start(world_size, role=EngineRole.REFERENCE, optim=None)
        self.assert_close(self.scores(ranks, batch, {"log_probs"}), expected, "log_probs of the reference")
        for outcome in self.refusals(ranks, calls.step):
            assert isinstance(outcome, RlError), f"optimizer_step without an optimizer gave {outcome!r}"

    def test_unknown_outputs_are_refused(self, batch: DataProto) -> None:
        """An output that the role does not have is an error that names it.

        If this fails: the engine returns fewer columns than asked, and a stage would fail later without a cause.
        """
        ranks = self.start(self.world_sizes[0])
        for wrong in ("values", "log_prob"):
            for outcome in self.refusals(ranks, calls.forward, batch=batch, outputs=frozenset({wrong})):
                assert isinstance(outcome, ConfigError), f"asking a policy for {wrong!r} gave {outcome!r}"
                assert wrong in str(outcome)

    def test_disabling_an_absent_adapter_changes_nothing(self, world_size: int, batch: DataProto) -> None:
        """``disable_adapter`` of an engine without adapter is the engine itself.

        If this fails: ``disable_adapter`` is not a no-op for full fine-tuning.
        """
        if self.supports_adapter:
            return
        ranks = self.start(world_size)
        expected = self.scores(ranks, batch, {"log_probs"})
        answers = self.ask(ranks, calls.forward_without_adapter, batch=batch, outputs=frozenset({"log_probs"}))
        self.assert_close(calls.collected(answers), expected, "log_probs without adapter")
