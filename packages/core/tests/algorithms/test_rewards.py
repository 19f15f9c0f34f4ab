import pytest
import torch
from rl_core.algorithms.rewards import missing_rewards, sequence_rewards
from rl_core.errors import ShapeError

NAN, INF = float("nan"), float("inf")
REWARDS = torch.tensor([[0.5, 1.0, NAN], [0.5, NAN, 9.0], [NAN, NAN, NAN], [INF, 0.0, 0.0], [9.0, 2.0, 9.0]])
MASK = torch.tensor(
    [[True, True, False], [True, True, False], [False, False, False], [True, True, True], [False, True, False]]
)


def test_missing_is_what_is_not_finite_where_the_policy_spoke():
    assert missing_rewards(REWARDS, MASK).tolist() == [False, True, False, True, False]


def test_a_row_is_usable_with_a_token_and_a_reward():
    rewards, usable = sequence_rewards(REWARDS, MASK)
    assert rewards.tolist() == [1.5, 0.0, 0.0, 0.0, 2.0]
    assert usable.tolist() == [True, False, False, False, True]


def test_half_precision_is_summed_in_float32():
    rewards, _ = sequence_rewards(torch.full((1, 1000), 1.0, dtype=torch.bfloat16), torch.ones(1, 1000).bool())
    assert rewards.dtype == torch.float32
    assert rewards.item() == 1000.0


@pytest.mark.parametrize("function", [missing_rewards, sequence_rewards])
def test_shapes_that_differ_are_refused_with_both(function):
    with pytest.raises(ShapeError, match=r"token_level_rewards \(5, 3\).*response_mask \(5, 2\)"):
        function(REWARDS, MASK[:, :2])
