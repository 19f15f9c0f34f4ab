from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.contracts.rollout import RolloutRequest, SamplingParams
from rl_core.errors import WeightSyncError
from rl_rollout_hf.cache import BLOCK
from rl_rollout_hf.in_flight import InFlight
from rl_rollout_hf.scheduler import Limits, Scheduler


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def item(loop):
    """Makes a waiting sequence."""

    def make(name, prompt_length=4, max_tokens=100, first=0):
        request = RolloutRequest(
            request_id=str(name),
            prompt_ids=tuple(range(first, first + prompt_length)),
            sampling=SamplingParams(max_tokens=max_tokens),
            seed=0,
        )
        future = loop.create_future()
        return InFlight(request, future, eos_token_ids=(), max_model_len=10_000, stop_strings=None)

    return make


def scheduler_of(*items, max_num_seqs=8, max_num_batched_tokens=10_000, budget_tokens=100_000):
    scheduler = Scheduler(Limits(max_num_seqs, max_num_batched_tokens, budget_tokens))
    scheduler.waiting.extend(items)
    return scheduler


def plan(scheduler):
    return scheduler.plan(1, lambda item: None)


def names(plan):
    return [item.request.request_id for item in plan.rows]


def test_nothing_to_do_is_no_plan():
    assert plan(scheduler_of()) is None


def test_sequences_are_admitted_in_order_as_others_end(item):
    scheduler = scheduler_of(*(item(name) for name in "abcde"), max_num_seqs=3)
    first = plan(scheduler)
    assert (names(first), first.kept, len(first.contexts)) == (["a", "b", "c"], 0, 3)
    for running in first.rows:
        running.add(7, -1.0, 1)
    first.rows[0].finish("stop", with_log_probs=True)
    second = plan(scheduler)
    # The last row moved into the gap, and the new one is last.
    assert (names(second), second.moves, second.kept) == (["c", "b", "d"], ((2, 0),), 2)
    assert second.contexts == ((0, 1, 2),)
    assert second.kept_length == 4  # of four tokens of the prompt and one drawn, the last is not in the cache yet


def test_several_gaps_are_closed(item):
    scheduler = scheduler_of(*(item(name) for name in "abcdefg"))
    rows = plan(scheduler).rows
    for place in (0, 3, 5):
        rows[place].finish("stop", with_log_probs=True)
    second = plan(scheduler)
    assert (names(second), second.moves) == (["e", "b", "c", "g"], ((4, 0), (6, 3)))


def test_what_was_given_up_while_waiting_is_not_admitted(item):
    given_up, wanted = item("a"), item("b")
    given_up.future.cancel()
    assert names(plan(scheduler_of(given_up, wanted))) == ["b"]


def test_a_refused_sequence_gets_the_reason(item):
    stale, fresh = item("a"), item("b")
    scheduler = scheduler_of(stale, fresh)
    admitted = scheduler.plan(1, lambda one: WeightSyncError("stale") if one is stale else None)
    assert names(admitted) == ["b"]
    assert isinstance(stale.future.exception(), WeightSyncError)


def test_a_step_reads_no_more_tokens_than_the_limit(item):
    # 9 tokens of context each, and 1 for the row itself.
    items = [item(name, prompt_length=10, first=100 * place) for place, name in enumerate("abcd")]
    scheduler = scheduler_of(*items, max_num_batched_tokens=25)
    assert names(plan(scheduler)) == ["a", "b"]
    # Two rows run: 2 + 10 are within the limit, 2 + 20 are too.
    assert names(plan(scheduler)) == ["a", "b", "c", "d"]


def test_a_prompt_over_the_limit_goes_alone(item):
    scheduler = scheduler_of(item("a", 50, first=1), item("b", 50), item("c", 3), max_num_batched_tokens=20)
    assert names(plan(scheduler)) == ["a"]
    assert names(plan(scheduler)) == ["a", "b"]
    assert names(plan(scheduler)) == ["a", "b", "c"]


def test_equal_prompts_count_once(item):
    scheduler = scheduler_of(*(item(name, prompt_length=20) for name in "abcd"), max_num_batched_tokens=25)
    assert names(plan(scheduler)) == ["a", "b", "c", "d"]


def test_the_cache_budget_counts_every_row_at_the_length_of_the_longest(item):
    long = 2 * BLOCK
    scheduler = scheduler_of(
        item("a", long, max_tokens=10), item("b", 2, max_tokens=10), item("c", 2, max_tokens=10), budget_tokens=300
    )
    first = plan(scheduler)
    assert names(first) == ["a", "b"]  # 2 x 138 fit, 3 x 138 do not
    first.rows[0].finish("stop", with_log_probs=True)
    assert names(plan(scheduler)) == ["b", "c"]


def test_the_one_admitted_last_starts_again_when_the_cache_is_full(item):
    scheduler = scheduler_of(*(item(name, prompt_length=4, max_tokens=500) for name in "abc"), budget_tokens=3 * 80)
    rows = plan(scheduler).rows
    for _ in range(20):
        assert names(plan(scheduler)) == ["a", "b", "c"] if rows[0].length + BLOCK <= 80 else True
        for running in rows:
            running.add(7, -1.0, 1)
    shrunk = plan(scheduler)
    assert names(shrunk) == ["a", "b"]
    assert [waiting.request.request_id for waiting in scheduler.waiting] == ["c"]
    for running in shrunk.rows:
        running.finish("stop", with_log_probs=True)
    again = plan(scheduler)
    assert names(again) == ["c"]
    assert again.contexts[0] == (0, 1, 2, 3, *[7] * 19)  # what was drawn is read again, not drawn again


def test_a_single_sequence_is_never_sent_back(item):
    scheduler = scheduler_of(item("a", 100, max_tokens=50), budget_tokens=150)
    running = plan(scheduler).rows[0]
    for _ in range(49):
        running.add(7, -1.0, 1)
        assert names(plan(scheduler)) == ["a"]


def test_requeued_sequences_come_back_first_and_in_order(item):
    scheduler = scheduler_of(*(item(name) for name in "abcde"), max_num_seqs=4)
    rows = plan(scheduler).rows
    rows[0].finish("stop", with_log_probs=True)
    plan(scheduler)  # the rows are d, b, c, e now
    scheduler.requeue()
    again = plan(scheduler)
    assert (names(again), again.kept, again.moves) == (["b", "c", "d", "e"], 0, ())


@settings(max_examples=60, deadline=None)
@given(data=st.data(), budget=st.integers(200, 2000), rows=st.integers(1, 6), tokens=st.integers(1, 80))
def test_everybody_is_served_and_rows_mean_what_the_plan_says(data, budget, rows, tokens):
    loop = asyncio.new_event_loop()
    wishes = data.draw(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 150)), min_size=1, max_size=12))
    items = []
    for name, (prompt_length, max_tokens) in enumerate(wishes):
        request = RolloutRequest(
            request_id=str(name),
            prompt_ids=(name,) * prompt_length,
            sampling=SamplingParams(max_tokens=max_tokens),
            seed=0,
        )
        items.append(InFlight(request, loop.create_future(), eos_token_ids=(), max_model_len=200, stop_strings=None))
    scheduler = scheduler_of(*items, max_num_seqs=rows, max_num_batched_tokens=tokens, budget_tokens=budget)
    held: list[str] = []  # whose keys and values a device would hold, by row
    for _ in range(20_000):
        step = plan(scheduler)
        if step is None:
            break
        for source, target in step.moves:
            held[target] = held[source]
        held = held[: step.kept] + [item.request.request_id for item in step.rows[step.kept :]]
        assert held == names(step)
        assert step.kept_length == max((item.length - 1 for item in step.rows[: step.kept]), default=0)
        assert len(step.contexts) == len(step.rows) - step.kept
        assert step.need.rows == len(step.rows) <= rows
        assert step.need.rows * step.need.length <= budget
        assert step.need.length == max(item.length for item in step.rows)
        for item in step.rows:
            reason = item.add(1, -1.0, 1)
            if reason is not None:
                item.finish(reason, with_log_probs=True)
    assert all(item.is_done for item in items)
    loop.close()
