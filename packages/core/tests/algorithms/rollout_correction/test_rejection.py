import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rl_core.algorithms.rollout_correction.rejection import reject

MASK = torch.tensor([[True, True, True], [True, True, False], [True, False, False], [False, False, False]])
RATIOS = [[1.0, 2.0, 0.5], [1.5, 1.5, 99.0], [0.4, 99.0, 99.0], [99.0, 99.0, 99.0]]
LOGS = torch.tensor([[math.log(r) for r in row] for row in RATIOS], dtype=torch.float64)


def rule(name, upper, lower=None):
    scope, _, estimator = name.rpartition("_")
    return SimpleNamespace(scope=scope, estimator=estimator, lower=lower, upper=upper)


def rejected(*rules):
    return reject(LOGS, MASK, rules)[0].int().tolist()


NONE = [[0, 0, 0]] * 4


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        # Ratios 1, 2, 0.5 | 1.5, 1.5 | 0.4 in [0.45, 1.8].
        (rule("token_k1", 1.8, 0.45), [[0, 1, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]]),
        # (log r)^2 / 2: 0, 0.240, 0.240 | 0.082, 0.082 | 0.420.
        (rule("token_k2", 0.3), [[0, 0, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]]),
        # r - 1 - log r: 0, 0.307, 0.193 | 0.095, 0.095 | 0.316.
        (rule("token_k3", 0.25), [[0, 1, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]]),
        # Products: 1, 2.25, 0.4.
        (rule("seq_sum_k1", 2.0, 0.3), [[0, 0, 0], [1, 1, 0], [0, 0, 0], [0, 0, 0]]),
        (rule("seq_sum_k1", 3.0, 0.5), [[0, 0, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]]),
        # Sums of k2: 0.480, 0.164, 0.420; of k3: 0.5, 0.189, 0.316.
        (rule("seq_sum_k2", 0.45), [[1, 1, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0]]),
        (rule("seq_sum_k3", 0.4), [[1, 1, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0]]),
        # Geometric means: 1, 1.5, 0.4.
        (rule("seq_mean_k1", 1.4, 0.3), [[0, 0, 0], [1, 1, 0], [0, 0, 0], [0, 0, 0]]),
        # Means of k2: 0.160, 0.082, 0.420; of k3: 0.167, 0.095, 0.316.
        (rule("seq_mean_k2", 0.2), [[0, 0, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]]),
        (rule("seq_mean_k3", 0.15), [[1, 1, 1], [0, 0, 0], [1, 0, 0], [0, 0, 0]]),
        (rule("seq_max_k2", 0.3), [[0, 0, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]]),
        (rule("seq_max_k3", 0.31), [[0, 0, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]]),
    ],
    ids=lambda value: f"{value.scope}_{value.estimator}" if isinstance(value, SimpleNamespace) else None,
)
def test_by_hand(one, expected):
    assert rejected(one) == expected


def test_one_rule_that_rejects_is_enough():
    first, second = rule("token_k1", 1.8, 0.45), rule("seq_mean_k1", 1.4, 0.3)
    assert rejected(first, second) == [[0, 1, 0], [1, 1, 0], [1, 0, 0], [0, 0, 0]]
    assert rejected() == NONE


def test_what_a_rule_saw():
    _, (outcome,) = reject(LOGS, MASK, [rule("seq_sum_k1", 2.0, 0.5)])
    assert outcome.name == "seq_sum_k1"
    assert outcome.distance.tolist() == pytest.approx([0.0, -math.log(2.25), -math.log(0.4), 0.0])
    assert outcome.counted.tolist() == [True, True, True, False]
    assert outcome.is_high.tolist() == [False, True, False, False]
    assert outcome.is_low.tolist() == [False, False, True, False]


ALL = ["token_k1", "token_k2", "token_k3", "seq_sum_k1", "seq_sum_k2", "seq_sum_k3", "seq_mean_k1", "seq_mean_k2"]
ALL += ["seq_mean_k3", "seq_max_k2", "seq_max_k3"]


@pytest.mark.parametrize("name", ALL)
def test_agreement_and_empty_batches_reject_nothing(name):
    tight = rule(name, 1.0 if name.endswith("k1") else 1e-12, 1.0 if name.endswith("k1") else None)
    assert not reject(torch.zeros_like(LOGS), MASK, [tight])[0].any()
    for shape in ((0, 3), (2, 0)):
        found = reject(torch.zeros(shape).double(), torch.zeros(shape).bool(), [tight])[0]
        assert found.shape == shape


def slow(name, row, upper, lower):
    """Whether the response, or each of its tokens, is rejected: plain Python, straight from the definition."""
    scope, _, kind = name.rpartition("_")
    distance = {"k1": lambda d: -d, "k2": lambda d: d * d / 2, "k3": lambda d: math.exp(d) - 1 - d}[kind]
    values = [distance(d) for d in row]
    if not values:
        return []

    def is_bad(value):
        return not lower <= math.exp(-value) <= upper if kind == "k1" else value > upper

    if scope == "token":
        return [is_bad(value) for value in values]
    reduced = {"seq_sum": sum(values), "seq_mean": sum(values) / len(values), "seq_max": max(values)}[scope]
    return [is_bad(reduced)] * len(values)


@given(
    st.lists(st.lists(st.floats(-3, 3, width=16), max_size=4), min_size=1, max_size=4),
    st.sampled_from(ALL),
    st.sampled_from([float("nan"), float("inf"), -7.0]),
)
def test_a_slow_reference_with_garbage_in_the_padding(rows, name, garbage):
    upper, lower = (1.7321, 0.577) if name.endswith("k1") else (0.7071, None)
    x = torch.tensor([[*row, *[garbage] * (5 - len(row))] for row in rows], dtype=torch.float64)
    mask = torch.tensor([[t < len(row) for t in range(5)] for row in rows])
    found = reject(x, mask, [rule(name, upper, lower)])[0]
    assert [row[: len(given)] for row, given in zip(found.tolist(), rows, strict=True)] == [
        slow(name, row, upper, lower) for row in rows
    ]
    assert not (found & ~mask).any()


@pytest.mark.parametrize("one", [rule("token_k2", 0.5), rule("seq_sum_k2", 0.5), rule("token_k1", math.e, 1 / math.e)])
def test_a_distance_on_the_bound_is_kept(one):
    for log_ratio in (1.0, -1.0):
        ratios = torch.tensor([[log_ratio]], dtype=torch.float64)
        assert not reject(ratios, torch.ones(1, 1, dtype=torch.bool), [one])[0].any()
        assert reject(ratios * 1.001, torch.ones(1, 1, dtype=torch.bool), [one])[0].all()
