from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rl_core.algorithms.advantages.grpo_passk import grpo_passk

NAN = float("nan")
PLAIN, BY_STD = SimpleNamespace(norm_adv_by_std_in_grpo=False), SimpleNamespace(norm_adv_by_std_in_grpo=True)


def test_only_the_best_of_a_group_gets_its_lead(outcomes, rows):
    inputs = outcomes([0.2, 1.0, 0.5, 3.0, -1.0], list("aaabb"), [1, 2, 3, 4, 1])
    assert rows(grpo_passk(inputs, PLAIN)[0], inputs) == pytest.approx([0.0, 0.5, 0.0, 4.0, 0.0])
    # unbiased standard deviations: 0.404145 and 2.828427
    assert rows(grpo_passk(inputs, BY_STD)[0], inputs) == pytest.approx([0.0, 1.237176, 0.0, 1.414213, 0.0], abs=1e-5)


def test_two_best_make_either_superfluous(outcomes):
    for config in (PLAIN, BY_STD):
        assert grpo_passk(outcomes([1.0, 1.0, 0.0, 0.1, 0.1], list("aaabb")), config)[0].count_nonzero() == 0


def test_a_row_alone_keeps_its_reward(outcomes, rows):
    inputs = outcomes([0.7, NAN, -0.3, NAN], list("aabc"))
    assert rows(grpo_passk(inputs, PLAIN)[0], inputs) == pytest.approx([0.7, 0.0, -0.3, 0.0])
    assert rows(grpo_passk(inputs, BY_STD)[0], inputs) == pytest.approx([0.6999993, 0.0, -0.2999997, 0.0], abs=1e-7)


def test_a_missing_reward_is_not_second_best(outcomes, rows):
    inputs = outcomes([1.0, NAN, 0.0], list("aaa"))
    assert rows(grpo_passk(inputs, PLAIN)[0], inputs) == pytest.approx([1.0, 0.0, 0.0])


ROW = st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 0.25, 1.0, -2.0, NAN]))


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ROW, min_size=1, max_size=9))
def test_like_plain_python(outcomes, rows, data):
    expected = []
    for i, (name, reward) in enumerate(data):
        others = [r for j, (other, r) in enumerate(data) if other == name and j != i and r == r]
        with_it = max([*others, reward], default=0.0)
        expected.append(0.0 if reward != reward else with_it - (max(others) if others else 0.0))
    uid, rewards = zip(*data, strict=True)
    inputs = outcomes(rewards, uid)
    assert rows(grpo_passk(inputs, PLAIN)[0], inputs) == pytest.approx(expected, abs=1e-12)
