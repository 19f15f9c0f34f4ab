import numpy as np
import pytest
from rl_core.trainer.ppo.mini_batch_plan import plan_mini_batches


def uids(*names):
    return np.array(names, dtype=object)


def plan(uid, tokens, **overrides):
    options = {"mini_batch_size": 2, "epochs": 1, "shuffle": False, "seed": (7, 1), "max_response_length": 10}
    return plan_mini_batches(uid, np.array(tokens, dtype=np.int64), **(options | overrides))


def test_groups_stay_whole_and_totals_count_the_whole_mini_batch():
    result = plan(uids("b", "b", "a", "a", "c"), [1, 2, 3, 4, 5])

    assert [batch.rows.tolist() for batch in result.batches] == [[0, 1, 2, 3], [4]]
    assert [(batch.totals.num_tokens, batch.totals.num_sequences) for batch in result.batches] == [(10, 4), (5, 1)]
    assert result.batches[0].totals.max_response_length == 10


def test_rows_without_trained_tokens_are_left_out():
    result = plan(uids("a", "a", "b"), [0, 2, 0], mini_batch_size=1)

    assert [batch.rows.tolist() for batch in result.batches] == [[1]]


def test_epochs_repeat_every_row_once_each_and_shuffle_depends_on_seed_and_epoch():
    uid = uids(*"abcdefgh")
    first = plan(uid, [1] * 8, epochs=2, shuffle=True)
    again = plan(uid, [1] * 8, epochs=2, shuffle=True)
    other = plan(uid, [1] * 8, epochs=2, shuffle=True, seed=(7, 2))

    rows = lambda p: [batch.rows.tolist() for batch in p.batches]  # noqa: E731
    assert rows(first) == rows(again) != rows(other)
    visited = [row for batch in rows(first) for row in batch]
    assert sorted(visited[:8]) == sorted(visited[8:]) == list(range(8))
    assert rows(first)[:4] != rows(first)[4:]


@pytest.mark.parametrize("dp_size", [1, 2, 3, 4])
def test_split_covers_every_mini_batch_once_whatever_the_width(dp_size):
    whole = plan(uids(*"abcdefg"), [1] * 7, mini_batch_size=3, epochs=2, shuffle=True)
    parts = whole.split(dp_size)

    for number, batch in enumerate(whole.batches):
        pieces = [rows[local.batches[number].rows] for rows, local in parts]
        assert sorted(np.concatenate(pieces).tolist()) == sorted(batch.rows.tolist())
        assert max(map(len, pieces)) - min(map(len, pieces)) <= 1
        assert all(local.batches[number].totals == batch.totals for _, local in parts)


def test_each_worker_gets_a_row_once_even_if_two_epochs_use_it():
    rows, local = plan(uids("a", "b"), [1, 1], mini_batch_size=2, epochs=3).split(1)[0]

    assert rows.tolist() == [0, 1]
    assert [batch.rows.tolist() for batch in local.batches] == [[0, 1]] * 3


def test_surplus_rows_of_successive_mini_batches_go_to_different_workers():
    parts = plan(uids(*"abcdef"), [1] * 6, mini_batch_size=3).split(2)

    assert [[len(batch.rows) for batch in local.batches] for _, local in parts] == [[2, 1], [1, 2]]


@pytest.mark.parametrize("dp_size", [1, 2, 3])
def test_with_costs_parts_cost_alike_and_cover_the_same_mini_batches(dp_size):
    uid, costs = uids(*"abcdefghijkl"), np.array([9.0, 8, 7, 6, 1, 1, 1, 1, 6, 7, 8, 9])
    whole = plan(uid, [1] * 12, mini_batch_size=6, epochs=2, costs=costs)
    parts = whole.split(dp_size)

    for number, batch in enumerate(whole.batches):
        pieces = [rows[local.batches[number].rows] for rows, local in parts]
        assert sorted(np.concatenate(pieces).tolist()) == sorted(batch.rows.tolist())
        loads = [costs[piece].sum() for piece in pieces]
        assert max(loads) - min(loads) <= {1: 0.0, 2: 0.0, 3: 4.0}[dp_size]
        assert max(map(len, pieces)) - min(map(len, pieces)) <= 1
