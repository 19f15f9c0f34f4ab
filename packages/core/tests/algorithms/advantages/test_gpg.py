import pytest
from rl_core.algorithms.advantages.gpg import gpg

NAN = float("nan")


def test_groups_that_teach_nothing_scale_the_others_up(outcomes, rows):
    inputs = outcomes([1.0, 0.0, 1.0, 1.0], list("aabb"))
    # B = 4, M = 2: alpha = 2
    assert rows(gpg(inputs, None)[0], inputs) == pytest.approx([1.0, -1.0, 0.0, 0.0])


def test_without_such_groups_alpha_is_one(outcomes, rows):
    inputs = outcomes([1.0, 0.0, 0.0, 3.0], list("aabb"))
    assert rows(gpg(inputs, None)[0], inputs) == pytest.approx([0.5, -0.5, -1.5, 1.5])


def test_a_wrong_answer_with_reward_zero_is_no_reason_to_scale(outcomes, rows):
    inputs = outcomes([0.0, 0.0, 0.0, 4.0], list("aaaa"))
    assert rows(gpg(inputs, None)[0], inputs) == pytest.approx([-1.0, -1.0, -1.0, 3.0])


def test_missing_rewards_count_neither_here_nor_there(outcomes, rows):
    inputs = outcomes([1.0, 0.0, NAN, 1.0, 1.0, NAN], list("aaabbb"))
    assert rows(gpg(inputs, None)[0], inputs) == pytest.approx([1.0, -1.0, 0.0, 0.0, 0.0, 0.0])


def test_nothing_to_learn(outcomes):
    assert gpg(outcomes([0.1] * 6, list("aaabbb")), None)[0].count_nonzero() == 0
    assert gpg(outcomes([NAN], ["a"]), None)[0].count_nonzero() == 0


def test_a_row_alone_keeps_its_reward_scaled(outcomes, rows):
    inputs = outcomes([0.5, 1.0, 1.0], list("abb"))
    assert rows(gpg(inputs, None)[0], inputs) == pytest.approx([1.5, 0.0, 0.0])


def test_a_row_alone_is_not_one_of_those_that_teach_nothing(outcomes, rows):
    inputs = outcomes([0.5, 1.0, 0.0, 1.0, 1.0], list("abbcc"))
    # B = 5, M = 2: alpha = 5 / 3
    assert rows(gpg(inputs, None)[0], inputs) == pytest.approx([5 / 6, 5 / 6, -5 / 6, 0.0, 0.0])
