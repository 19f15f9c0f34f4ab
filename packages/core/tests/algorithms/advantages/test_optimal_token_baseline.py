import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.algorithms.advantages.optimal_token_baseline import optimal_token_baseline
from rl_core.algorithms.inputs import AdvantageInputs
from rl_core.errors import DataError, ShapeError

NAN = float("nan")


def _inputs(rewards, mask, uid, energy, **extras):
    """Columns that give each token the energy ``energy``: probability one half, so w = sum of squares."""
    squares = torch.tensor(energy, dtype=torch.float64)
    extras = {"old_log_probs": torch.full_like(squares, 0.5).log(), "sum_pi_squared": squares, **extras}
    return AdvantageInputs(
        token_level_rewards=torch.tensor(rewards, dtype=torch.float64),
        response_mask=torch.tensor(mask).bool(),
        uid=np.array(uid, dtype=object),
        extras=extras,
    )


def test_the_baseline_weighs_returns_by_gathered_energy():
    inputs = _inputs([[0.0, 1.0], [0.5, 0.0]], [[1, 1], [1, 1]], ["a", "a"], [[0.25, 0.25], [0.75, 0.25]])
    advantages, returns = optimal_token_baseline(inputs, None)
    assert returns.tolist() == [[1.0, 1.0], [0.5, 0.0]]
    # step 0: (0.25 * 1 + 0.75 * 0.5) / 1 = 0.625; step 1: (0.5 * 1 + 1 * 0) / 1.5 = 1/3
    assert advantages.flatten().tolist() == pytest.approx([0.375, 2 / 3, -0.125, -1 / 3])


def test_the_probability_enters_the_energy():
    inputs = _inputs([[1.0], [0.0]], [[1], [1]], ["a", "a"], [[0.5], [0.5]])
    inputs.extras["old_log_probs"] = torch.tensor([[0.25], [0.5]], dtype=torch.float64).log()
    # w = 1 - 0.5 + 0.5 = 1 and 1 - 1 + 0.5 = 0.5: baseline 2/3
    assert optimal_token_baseline(inputs, None)[0].flatten().tolist() == pytest.approx([1 / 3, -2 / 3])


def test_importance_weights_scale_the_energy_by_their_square():
    weights = torch.tensor([[2.0], [1.0]])
    inputs = _inputs([[1.0], [0.0]], [[1], [1]], ["a", "a"], [[0.5], [0.5]], rollout_is_weights=weights)
    assert optimal_token_baseline(inputs, None)[0].flatten().tolist() == pytest.approx([0.2, -0.8])


def test_steps_that_one_row_reaches_have_no_baseline():
    inputs = _inputs([[0.0, 0.0, 1.0], [0.0, 0.0, 9.0]], [[1, 1, 1], [1, 1, 0]], ["a", "a"], [[0.5] * 3] * 2)
    assert optimal_token_baseline(inputs, None)[0].tolist() == [[0.5, 0.5, 1.0], [-0.5, -0.5, 0.0]]
    alone = _inputs([[0.0, 0.7]], [[1, 1]], ["a"], [[0.5] * 2])
    assert optimal_token_baseline(alone, None)[0].tolist() == [[0.7, 0.7]]


def test_equal_returns_are_exactly_zero():
    inputs = _inputs([[0.1]] * 3, [[1]] * 3, list("aaa"), [[0.3], [0.77], [0.12]])
    assert optimal_token_baseline(inputs, None)[0].count_nonzero() == 0


def test_a_policy_without_doubt_falls_back_on_the_mean():
    inputs = _inputs([[1.0], [0.0]], [[1], [1]], ["a", "a"], [[0.0], [0.0]])
    assert optimal_token_baseline(inputs, None)[0].flatten().tolist() == [0.5, -0.5]


def test_a_missing_reward_leaves_its_group():
    inputs = _inputs([[1.0], [NAN], [0.0]], [[1]] * 3, list("aaa"), [[0.5], [0.9], [0.5]])
    advantages, returns = optimal_token_baseline(inputs, None)
    assert advantages.flatten().tolist() == [0.5, 0.0, -0.5]
    assert returns.flatten().tolist() == [1.0, 0.0, 0.0]


def test_energy_that_is_not_finite_is_refused_only_where_a_token_is():
    inputs = _inputs([[1.0, 0.0], [0.0, 0.0]], [[1, 0], [1, 0]], ["a", "a"], [[0.5, NAN], [0.5, NAN]])
    assert optimal_token_baseline(inputs, None)[0][:, 0].tolist() == [0.5, -0.5]
    inputs.extras["sum_pi_squared"][1, 0] = NAN
    with pytest.raises(DataError, match=r"sum_pi_squared must be finite; .* first in row 1"):
        optimal_token_baseline(inputs, None)


def test_columns_of_another_shape():
    inputs = _inputs([[1.0]], [[1]], ["a"], [[0.5]])
    inputs.extras["old_log_probs"] = torch.zeros(1, 2)
    with pytest.raises(ShapeError, match="old_log_probs"):
        optimal_token_baseline(inputs, None)


def test_extreme_log_probs_stay_finite():
    inputs = _inputs([[1.0], [0.0]], [[1], [1]], ["a", "a"], [[0.5], [1e-30]])
    inputs.extras["old_log_probs"] = torch.tensor([[-1e30], [0.0]], dtype=torch.float64)
    assert optimal_token_baseline(inputs, None)[0].flatten().tolist() == pytest.approx([0.0, -1.0])


def _slow(rewards, mask, uid, energy):
    height, width = len(rewards), len(rewards[0])
    returns = [[sum(rewards[i][s] * mask[i][s] for s in range(t, width)) for t in range(width)] for i in range(height)]
    gathered = [[sum(energy[i][s] * mask[i][s] for s in range(t + 1)) for t in range(width)] for i in range(height)]
    found = [[0.0] * width for _ in range(height)]
    for i in range(height):
        for t in range(width):
            group = [j for j in range(height) if uid[j] == uid[i] and mask[j][t]]
            if not mask[i][t]:
                continue
            total = sum(gathered[j][t] for j in group)
            baseline = sum(gathered[j][t] * returns[j][t] for j in group) / total if len(group) > 1 else 0.0
            found[i][t] = returns[i][t] - baseline
    return found


TOKEN = st.tuples(st.sampled_from([0.0, 0.5, -1.0]), st.integers(0, 1), st.sampled_from([0.25, 0.5, 1.0]))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.lists(TOKEN, min_size=4, max_size=4)), min_size=1, max_size=5))
def test_like_plain_python(data):
    uid = [name for name, _ in data]
    rewards, mask, energy = ([[token[k] for token in tokens] for _, tokens in data] for k in range(3))
    advantages, _ = optimal_token_baseline(_inputs(rewards, mask, uid, energy), None)
    assert torch.allclose(advantages, torch.tensor(_slow(rewards, mask, uid, energy), dtype=torch.float64), atol=1e-12)
