import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rl_core.algorithms.advantages.opo import opo

NAN = float("nan")


def test_long_responses_weigh_more(outcomes, rows):
    inputs = outcomes([1.0, 0.0, 0.7], ["a", "a", "b"], [1, 3, 2])
    # b(a) = (1 * 1 + 3 * 0) / 4
    assert rows(opo(inputs, None)[0], inputs) == pytest.approx([0.75, -0.25, 0.7])


def test_only_trained_tokens_count_as_length(outcomes):
    inputs = outcomes([1.0, 0.0], ["a", "a"], [3, 3])
    inputs.response_mask[0, 1] = False
    inputs.token_level_rewards[0, 1] = NAN
    advantages, _ = opo(inputs, None)
    # b = 2 * 1 / (2 + 3)
    assert advantages[0].tolist() == pytest.approx([0.6, 0.0, 0.6, 0.0])
    assert advantages[1, 0].item() == pytest.approx(-0.4)


def test_a_missing_reward_leaves_its_length_out_too(outcomes, rows):
    inputs = outcomes([1.0, NAN, 0.0], list("aaa"), [1, 4, 3])
    assert rows(opo(inputs, None)[0], inputs) == pytest.approx([0.75, 0.0, -0.25])


def test_equal_rewards_are_exactly_zero(outcomes):
    assert opo(outcomes([0.1] * 7, "p" * 7, [1, 2, 3, 4, 1, 2, 3]), None)[0].count_nonzero() == 0


ROW = st.tuples(st.sampled_from("ab"), st.sampled_from([0.0, 0.25, 1.0, -2.0]), st.integers(1, 4))


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ROW, min_size=1, max_size=8))
def test_like_plain_python(outcomes, rows, data):
    expected = []
    for name, reward, _ in data:
        group = [(r, length) for other, r, length in data if other == name]
        weighted, total = sum(r * length for r, length in group), sum(length for _, length in group)
        expected.append(reward - (weighted / total if len(group) > 1 else 0.0))
    uid, rewards, lengths = zip(*data, strict=True)
    inputs = outcomes(rewards, uid, list(lengths))
    assert rows(opo(inputs, None)[0], inputs) == pytest.approx(expected, abs=1e-12)
