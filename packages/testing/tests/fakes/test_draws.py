from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.contracts.rollout import SamplingParams
from rl_testing.fakes.draws import draw, log_distribution, uniform

# Probabilities 0.4, 0.3, 0.2, 0.1.
LOGITS = np.log(np.array([4.0, 3.0, 2.0, 1.0]))


def probabilities(forbidden=(), **sampling):
    return np.exp(log_distribution(LOGITS, SamplingParams(**sampling), forbidden)).tolist()


def test_temperature_divides_the_logits():
    assert probabilities() == pytest.approx([0.4, 0.3, 0.2, 0.1])
    assert probabilities(temperature=0.5) == pytest.approx([16 / 30, 9 / 30, 4 / 30, 1 / 30])
    assert probabilities(temperature=2.0) == pytest.approx(np.sqrt([4, 3, 2, 1]) / np.sqrt([4, 3, 2, 1]).sum())


def test_temperature_zero_is_one_token():
    assert probabilities(temperature=0.0) == [1.0, 0.0, 0.0, 0.0]
    assert log_distribution(np.zeros(3), SamplingParams(temperature=0.0)).tolist() == [0.0, -math.inf, -math.inf]
    assert probabilities(temperature=0.0, forbidden=(0,)) == [0.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"top_k": 2}, [4 / 7, 3 / 7, 0, 0]),
        ({"top_k": 9}, [0.4, 0.3, 0.2, 0.1]),
        ({"top_p": 0.39}, [1, 0, 0, 0]),
        ({"top_p": 0.41}, [4 / 7, 3 / 7, 0, 0]),
        ({"top_p": 0.95}, [0.4, 0.3, 0.2, 0.1]),
        ({"top_k": 2, "top_p": 0.57}, [1, 0, 0, 0]),  # 4/7 = 0.5714 of what top-k leaves
        ({"top_k": 3, "top_p": 0.57}, [4 / 7, 3 / 7, 0, 0]),
    ],
)
def test_filters_leave_the_likeliest(filters, expected):
    assert probabilities(**filters) == pytest.approx(expected)


def test_forbidden_tokens_are_not_drawn():
    assert probabilities(forbidden=(0, 3)) == pytest.approx([0, 0.6, 0.4, 0])


def test_logits_are_not_written_to():
    before = LOGITS.copy()
    log_distribution(LOGITS, SamplingParams(temperature=0.0), (1,))
    log_distribution(LOGITS, SamplingParams(top_k=1, top_p=0.5), (1,))
    assert LOGITS.tolist() == before.tolist()


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**63 - 1), st.integers(0, 10_000))
def test_a_draw_is_a_function_of_seed_and_position(seed, position):
    number = uniform(seed, position)
    assert 0 <= number < 1
    assert number == uniform(seed, position)
    shares = np.cumsum([0.4, 0.3, 0.2, 0.1])
    assert draw(np.log([0.4, 0.3, 0.2, 0.1]), seed, position) == int(np.searchsorted(shares, number, side="right"))


def test_neighbours_are_independent():
    numbers = [uniform(seed, position) for seed in range(40) for position in range(40)]
    assert len(set(numbers)) == 1600
    assert np.mean(numbers) == pytest.approx(0.5, abs=0.03)
    table = np.array(numbers).reshape(40, 40)
    assert abs(np.corrcoef(table[:, 0], table[:, 1])[0, 1]) < 0.4
    assert abs(np.corrcoef(table[0], table[1])[0, 1]) < 0.4


def test_impossible_tokens_are_never_drawn():
    log_probs = log_distribution(LOGITS, SamplingParams(), (0, 2))
    assert {draw(log_probs, seed, 0) for seed in range(100)} == {1, 3}
