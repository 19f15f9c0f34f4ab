import pytest
import torch
from rl_core.algorithms.inputs import PrepareInputs
from rl_core.algorithms.policy_losses.covariance import chosen_tokens, covariance, num_chosen
from rl_core.errors import DataError, ShapeError

NAN = float("nan")


def step(old_log_prob, advantages, mask):
    old_log_prob, advantages = torch.tensor(old_log_prob), torch.tensor(advantages)
    return PrepareInputs(old_log_prob=old_log_prob, advantages=advantages, response_mask=torch.tensor(mask), seed=(0,))


def test_the_means_are_those_of_all_tokens_of_the_step():
    # Over the three masked-in tokens: mean advantage 1, mean log-prob -2.
    found = covariance(step([[-1.0, -2.0], [-3.0, NAN]], [[0.0, 0.0], [3.0, NAN]], [[True, True], [True, False]]))
    assert found.tolist() == [[-1.0, 0.0], [-2.0, 0.0]]
    assert found.dtype == torch.float64


def test_no_token_at_all():
    nothing = step([[NAN]], [[NAN]], [[False]])
    assert covariance(nothing).tolist() == [[0.0]]
    assert num_chosen(nothing, 0.5) == 0


@pytest.mark.parametrize(("ratio", "number"), [(0.0, 0), (1e-9, 1), (0.34, 1), (0.5, 2), (0.99, 3), (1.0, 4)])
def test_a_share_is_rounded_down_but_not_to_none(ratio, number):
    assert num_chosen(step([[0.0] * 4], [[0.0] * 4], [[True] * 4]), ratio) == number


def test_a_batch_without_a_choice_is_refused(inputs):
    with pytest.raises(DataError, match="'kl_cov' works on tokens chosen over the whole step"):
        chosen_tokens(inputs([0.0], [0.0], [1.0]), "kl_cov")


def test_a_choice_at_a_masked_position_is_none(inputs):
    mask = torch.tensor([[True, False]])
    shard = inputs([0.0, 0.0], [0.0, 0.0], [1.0, 1.0], mask, prepared=torch.ones(1, 2))
    assert chosen_tokens(shard, "x").tolist() == [[True, False]]


def test_columns_of_another_shape_are_refused():
    with pytest.raises(ShapeError, match="advantages"):
        step([[0.0, 0.0]], [[0.0]], [[True, True]])
