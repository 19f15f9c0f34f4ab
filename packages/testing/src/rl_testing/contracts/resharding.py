"""The suite for reshardings: from any training engine to any generation engine, around generation.

::

    class TestMyMover(ReshardingContract):
        engine_class, rollout_class, resharding_class = MyEngine, MyRollout, MyResharding
        vocab_size = 48

        def make_sections(self, num_ranks, replica_size, tied): ...  # model, rollout, EngineConfig
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from rl_core.contracts.engine import EngineConfig, EngineRole, TrainingEngine
from rl_core.contracts.resharding import Resharding
from rl_core.contracts.rollout import RolloutEngine, RolloutState
from rl_core.errors import WeightSyncError
from rl_core.single_controller.base.collective import WorkerContext
from rl_core.workers.async_runner import AsyncRunner
from rl_core.workers.phases import Part, State

from rl_testing.contracts.ranks import Ranks, ThreadRanks, run_on_all
from rl_testing.contracts.resharding_sides import (
    SHARED_STATES,
    Generated,
    Moment,
    Sequence_,
    Side,
    connect,
    generate,
    on_rank,
    score,
    set_failure,
    set_late,
    update,
)
from rl_testing.contracts.suite import ContractSuite

Start = Callable[..., Ranks[Side]]

_ROLLOUT_STATES = {state for state in SHARED_STATES if state[0] is Part.ROLLOUT}
_PARAMETERS: State = (Part.ACTOR, "parameters")
_CACHE: State = (Part.ROLLOUT, "kv_cache")


class ReshardingContract(ContractSuite):
    """Override the first group; change the second where the pair is different; leave the third alone."""

    # 1. Override these.

    engine_class: type[TrainingEngine]
    rollout_class: type[RolloutEngine]
    resharding_class: type[Resharding]

    vocab_size: int
    """Token ids of the model."""

    def make_sections(self, num_ranks: int, replica_size: int, tied: bool) -> tuple[Any, Any, EngineConfig]:
        """The ``model`` and ``rollout`` sections and the trainer's configuration, which must have an optimizer.

        Args:
            num_ranks: workers.
            replica_size: workers of one replica.
            tied: the model's output layer is its embedding.
        """
        raise NotImplementedError

    # 2. Override these where the defaults do not fit.

    layouts: tuple[tuple[int, int], ...] = ((1, 1), (2, 1), (2, 2))
    """Numbers of workers, and workers of one replica, that every test runs with."""

    log_prob_tolerance = 1e-9
    """Largest difference between the generator's and the trainer's log-probs of one response."""

    smallest_change = 1e-3
    """A log-prob changes at least so much by one update."""

    prompts: tuple[tuple[int, ...], ...] = ((5, 3, 9, 4), (7,), (2, 8, 6))
    """What is generated from; token ids of the model."""

    bucket_bytes = 1 << 12

    deadline_s = 30.0
    """How long anything may take."""

    short_deadline_s = 1.0
    """The same where a test expects a rank to wait in vain."""

    def make_ranks(self, num_ranks: int, build: Callable[[WorkerContext], Side], deadline_s: float) -> Ranks[Side]:
        """The workers; override for engines that cannot share a process."""
        return ThreadRanks(num_ranks, build, dispose=Side.close, deadline_s=deadline_s)

    # 3. Leave these alone.

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run a test that takes ``layout`` with each of ``layouts``."""
        if "layout" in metafunc.fixturenames:
            metafunc.parametrize("layout", self.layouts, ids=lambda layout: "x".join(map(str, layout)))

    @pytest.fixture
    def start(self, layout: tuple[int, int]) -> Iterator[Start]:
        """Starts pairs that are closed after the test."""
        opened: list[Ranks[Side]] = []

        def start(
            *,
            tied: bool = False,
            evictable: Collection[State] = SHARED_STATES,
            sleep_level: int = 2,
            bucket_bytes: int = self.bucket_bytes,
            deadline_s: float = self.deadline_s,
        ) -> Ranks[Side]:
            num_ranks, replica_size = layout
            model, rollout, config = self.make_sections(num_ranks, replica_size, tied)

            def build(context: WorkerContext) -> Side:
                side = Side(
                    self.engine_class(EngineRole.POLICY, model, config, context),
                    self.rollout_class(model, rollout, context),
                    context,
                    AsyncRunner(f"rank-{context.rank}-loop"),
                    deadline_s,
                )
                side.engine.initialize()
                side.run(side.rollout.initialize())
                return connect(side, self.resharding_class, evictable, sleep_level, bucket_bytes)

            opened.append(self.make_ranks(num_ranks, build, deadline_s))
            return opened[-1]

        yield start
        for ranks in opened:
            ranks.close()

    def generated(self, ranks: Ranks[Side], version: int) -> list[Generated]:
        """One generation phase on every rank."""
        return run_on_all(ranks, partial(generate, version=version, prompts=self.prompts))

    def sequences(self, results: list[Generated]) -> list[Sequence_]:
        """What all replicas generated."""
        return [one for result in results for one in result.sequences or ()]

    def scores(self, ranks: Ranks[Side], sequences: list[Sequence_]) -> list[list[float]]:
        """The trainer's log-probs of ``sequences``."""
        infos = run_on_all(ranks, lambda side: side.engine.dispatch_info())
        parts = run_on_all(ranks, partial(score, sequences=sequences))
        order = sorted((info.dp_rank, rank) for rank, info in enumerate(infos) if info.is_collect)
        return [row for _, rank in order for row in parts[rank] or ()]

    def assert_same_weights(self, ranks: Ranks[Side], results: list[Generated], version: int) -> None:
        """What was generated as ``version`` has the trainer's log-probs of now, where the generator has log-probs."""
        assert {result.version for result in results} == {version}
        sequences = self.sequences(results)
        assert {one.output.versions for one in sequences} == {((version, 6),)}
        for one, expected in zip(sequences, self.scores(ranks, sequences), strict=True):
            if one.output.log_probs is not None:
                assert list(one.output.log_probs) == pytest.approx(expected, abs=self.log_prob_tolerance)

    def moments(self, ranks: Ranks[Side]) -> list[list[Moment]]:
        """What was seen on every rank."""
        return run_on_all(ranks, lambda side: list(side.moments))

    def train(self, ranks: Ranks[Side]) -> None:
        """One optimizer step."""
        norms = run_on_all(ranks, partial(update, vocab_size=self.vocab_size))
        assert all(math.isfinite(norm) and norm > 0 for norm in norms)

    @pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
    def test_the_generator_samples_from_the_trainers_weights(
        self, layout: tuple[int, int], start: Start, tied: bool
    ) -> None:
        """Responses have the log-probs that the trainer gives them, first and after an update.

        If this fails: tensors were left out, sent to the wrong slices, rounded, or are the ones from before the update.
        """
        ranks = start(tied=tied)
        first = self.generated(ranks, 1)
        self.assert_same_weights(ranks, first, 1)
        before = self.scores(ranks, self.sequences(first))
        self.train(ranks)
        after = self.scores(ranks, self.sequences(first))
        assert max(abs(a - b) for x, y in zip(before, after, strict=True) for a, b in zip(x, y, strict=True)) >= (
            self.smallest_change
        ), "the update changed nothing, so nothing is proved"
        self.assert_same_weights(ranks, self.generated(ranks, 2), 2)

    @pytest.mark.parametrize("bucket_bytes", [1, 1 << 30])
    def test_buckets_of_any_size(self, layout: tuple[int, int], start: Start, bucket_bytes: int) -> None:
        """A tensor a bucket, or all in one: the same weights arrive.

        If this fails: the mover assumes that a tensor fits into a bucket, or drops the last one.
        """
        ranks = start(bucket_bytes=bucket_bytes)
        self.assert_same_weights(ranks, self.generated(ranks, 1), 1)

    def test_the_report_tells_what_was_done(self, layout: tuple[int, int], start: Start) -> None:
        """Version, tensors, bytes and time; over a replica's ranks at least every byte of the model.

        If this fails: the numbers that are printed each step are not those of this hand-over.
        """
        ranks = start()
        manifest = ranks.run(0, lambda side: side.engine.weight_manifest())
        results = self.generated(ranks, 5)
        reports = [result.report for result in results]
        assert [(report.version, report.skipped) for report in reports] == [(5, False)] * ranks.size
        assert all(report.num_tensors >= 1 and report.seconds > 0 for report in reports)
        num_bytes = sum(math.prod(spec.shape) * getattr(torch, spec.dtype).itemsize for spec in manifest.sent)
        replica_size = layout[1]
        for first in range(0, ranks.size, replica_size):
            assert sum(report.num_bytes for report in reports[first : first + replica_size]) >= num_bytes

    @pytest.mark.parametrize("sleep_level", [None, 1], ids=["awake", "asleep"])
    def test_weights_that_are_there_are_not_sent_again(
        self, layout: tuple[int, int], start: Start, sleep_level: int | None
    ) -> None:
        """A second phase of one version sends nothing, if the generator kept its weights (awake, or by level 1).

        If this fails: every validation pays for a hand-over, or the report claims one.
        """
        ranks = start(evictable=() if sleep_level is None else SHARED_STATES, sleep_level=sleep_level or 1)
        first = self.generated(ranks, 1)
        run_on_all(ranks, set_failure(None))
        second = self.generated(ranks, 1)
        assert [result.report.skipped for result in second] == [True] * ranks.size
        assert [result.report.num_bytes for result in second] == [0] * ranks.size
        assert all(moment.event not in ("bucket", "begin") for seen in self.moments(ranks) for moment in seen)
        assert self.sequences(second) == self.sequences(first)

    def test_an_updated_policy_is_sent_though_weights_are_there(self, layout: tuple[int, int], start: Start) -> None:
        """A new version is sent to a generator that is awake and full.

        If this fails: the mover looks whether there are weights, not which.
        """
        ranks = start(evictable=())
        self.generated(ranks, 1)
        self.train(ranks)
        results = self.generated(ranks, 2)
        assert [result.report.skipped for result in results] == [False] * ranks.size
        self.assert_same_weights(ranks, results, 2)

    def test_all_ranks_agree_whether_to_send(self, layout: tuple[int, int], start: Start) -> None:
        """When one rank's generator has lost its weights, all ranks send.

        If this fails: each rank decides alone; some wait in a collective for the others until the deadline.
        """

        def lose(side: Side) -> None:
            side.run(side.rollout.sleep(2))
            side.run(side.rollout.wake(tuple(RolloutState)))

        ranks = start(evictable=())
        self.generated(ranks, 1)
        run_on_all(ranks, on_rank(ranks.size - 1, lose))
        results = self.generated(ranks, 1)
        assert [result.report.skipped for result in results] == [False] * ranks.size
        self.assert_same_weights(ranks, results, 1)

    def test_old_weights_new_weights_and_cache_never_stand_together(
        self, layout: tuple[int, int], start: Start
    ) -> None:
        """At no moment are the trainer's tensors on the device with the cache, nor its optimizer with the generator.

        If this fails: the devices change hands in the wrong order. Enter ``sync_weights``, move, enter ``generate``: the
        cache is woken last, when the trainer has left.
        """
        ranks = start()
        self.generated(ranks, 1)
        self.train(ranks)
        run_on_all(ranks, set_failure(None))
        results = self.generated(ranks, 2)
        for seen in self.moments(ranks):
            for moment in seen:
                assert not {_PARAMETERS, _CACHE} <= moment.resident, moment
                if moment.resident & _ROLLOUT_STATES:
                    assert not moment.resident & {(Part.ACTOR, "optimizer"), (Part.ACTOR, "gradients")}, moment
        assert [result.during for result in results] == [frozenset(_ROLLOUT_STATES)] * ranks.size

    @pytest.mark.parametrize("late", ["first", "last"])
    def test_a_replica_wakes_and_sleeps_as_one(self, layout: tuple[int, int], start: Start, late: str) -> None:
        """No lead answers before all ranks of its replica are awake, and none sleeps before its lead is done.

        If this fails: a lead reaches for the memory of a peer that is not awake yet, or asleep again. Meet at a barrier
        on both sides of the block.
        """
        ranks = start()
        ranks.run(0 if late == "first" else ranks.size - 1, set_late("answer" if late == "first" else "wake"))
        self.assert_same_weights(ranks, self.generated(ranks, 1), 1)

    def test_the_trainer_gets_the_devices_back(self, layout: tuple[int, int], start: Start) -> None:
        """After the block the generator holds nothing, and training goes on with unchanged weights.

        If this fails: the generator is not put to sleep at the end, or the hand-over changed the trainer's tensors.
        """
        ranks = start()
        first = self.generated(ranks, 1)
        before = self.scores(ranks, self.sequences(first))
        for result in self.generated(ranks, 2):
            assert not result.after & _ROLLOUT_STATES
        assert self.scores(ranks, self.sequences(first)) == before
        self.train(ranks)

    def test_an_error_inside_the_block_leaves_it(self, layout: tuple[int, int], start: Start) -> None:
        """An exception of the generation phase comes out, and the devices are the trainer's again.

        If this fails: the way out is not in a ``finally``; the run then dies of memory instead of its real error.
        """
        ranks = start()
        broken = partial(generate, version=1, prompts=self.prompts, raises=KeyError("in the block"))
        assert [type(outcome) for outcome in ranks.outcomes(broken)] == [KeyError] * ranks.size
        assert not any(set(run) & _ROLLOUT_STATES for run in run_on_all(ranks, lambda side: side.phases.resident()))
        self.train(ranks)
        self.assert_same_weights(ranks, self.generated(ranks, 2), 2)

    @pytest.mark.parametrize("where", ["begin", "put", "end"])
    def test_one_refusal_is_everybodys(self, layout: tuple[int, int], start: Start, where: str) -> None:
        """When one sink fails, every rank raises, every sink is told, nobody serves; the next hand-over is good.

        If this fails: ranks whose own sink is well go on to generate, or wait for the one that stopped. Exchange errors
        before and after the stream, drain it in between, and abort every sink.
        """
        ranks = start()
        self.generated(ranks, 1)
        run_on_all(ranks, set_failure(None))
        ranks.run(ranks.size - 1, set_failure(where))
        outcomes = ranks.outcomes(partial(generate, version=2, prompts=self.prompts))
        for outcome in outcomes:
            assert isinstance(outcome, WeightSyncError), outcome
            assert f"planted failure in {where}" in str(outcome)
        for seen in self.moments(ranks):
            assert "abort" in [moment.event for moment in seen]
        assert run_on_all(ranks, lambda side: side.rollout.version()) == [None] * ranks.size
        run_on_all(ranks, set_failure(None))
        self.train(ranks)
        self.assert_same_weights(ranks, self.generated(ranks, 3), 3)

    def test_nobody_waits_for_a_trainer_that_failed(self, layout: tuple[int, int], start: Start) -> None:
        """When one rank's weight stream fails, every rank raises in bounded time, and nobody serves.

        If this fails: the error stays on its rank, or half a hand-over is taken for a whole one.
        """
        ranks = start(deadline_s=self.short_deadline_s)
        run_on_all(ranks, set_failure(None))
        ranks.run(ranks.size - 1, set_failure("stream"))
        outcomes = ranks.outcomes(partial(generate, version=1, prompts=self.prompts))
        assert all(isinstance(outcome, Exception) for outcome in outcomes), outcomes
        assert "planted failure in stream" in _with_cause(outcomes[-1])
        assert run_on_all(ranks, lambda side: side.rollout.version()) == [None] * ranks.size

    def test_cached_prefixes_are_forgotten(self, layout: tuple[int, int], start: Start) -> None:
        """Every rank's prefix cache is reset after new weights and before the first request.

        If this fails: engines that keep prefixes until they are told answer from old weights.
        """
        ranks = start()
        self.generated(ranks, 1)
        run_on_all(ranks, set_failure(None))
        self.generated(ranks, 2)
        for seen in self.moments(ranks):
            events = [moment.event for moment in seen]
            assert "reset_prefix_cache" in events
            assert _last(events, "end") < _last(events, "reset_prefix_cache") < _last(events, "generate")


def _with_cause(outcome: Any) -> str:
    return f"{outcome!r} {outcome.__cause__!r}"


def _last(events: list[str], event: str) -> int:
    return max(place for place, name in enumerate(events) if name == event)
