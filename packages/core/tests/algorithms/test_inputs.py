import numpy as np
import pytest
import torch
from rl_core.algorithms.inputs import AdvantageInputs, LossTotals, PolicyLossInputs, ValueLossInputs
from rl_core.errors import ConfigError, ShapeError

MASK = torch.tensor([[True, True, False], [False, False, False]])
TOTALS = LossTotals(num_tokens=2, num_sequences=1, max_response_length=3)
ZEROS = torch.zeros(2, 3)


def test_totals_count_tokens_and_rows_that_have_one():
    assert LossTotals.of(MASK, max_response_length=8) == LossTotals(2, 1, 8)


@pytest.mark.parametrize("counts", [(-1, 0, 1), (0, -1, 1), (0, 0, 0)])
def test_totals_that_cannot_be_are_refused(counts):
    with pytest.raises(ConfigError, match="LossTotals"):
        LossTotals(*counts)


def test_totals_of_an_integer_mask_are_refused():
    with pytest.raises(ShapeError, match="bool"):
        LossTotals.of(MASK.long(), 8)


def test_advantage_inputs_need_rewards_of_the_masks_shape():
    with pytest.raises(ShapeError, match=r"token_level_rewards \(2, 4\).*response_mask \(2, 3\)"):
        AdvantageInputs(token_level_rewards=torch.zeros(2, 4), response_mask=MASK)


def test_advantage_inputs_need_values_of_the_masks_shape():
    with pytest.raises(ShapeError, match=r"values \(2, 2\)"):
        AdvantageInputs(token_level_rewards=ZEROS, response_mask=MASK, values=torch.zeros(2, 2))


@pytest.mark.parametrize("uid", [np.array(["a"]), np.array([["a", "b"]])])
def test_advantage_inputs_need_one_uid_a_row(uid):
    with pytest.raises(ShapeError, match=r"shape \(2,\).*response_mask \(2, 3\)"):
        AdvantageInputs(token_level_rewards=ZEROS, response_mask=MASK, uid=uid)


def test_extras_carry_further_columns():
    inputs = AdvantageInputs(token_level_rewards=ZEROS, response_mask=MASK, extras={"greedy": torch.ones(2)})
    assert inputs.extras["greedy"].tolist() == [1.0, 1.0]
    assert dict(AdvantageInputs(token_level_rewards=ZEROS, response_mask=MASK).extras) == {}


@pytest.mark.parametrize(
    "name", ["log_prob", "old_log_prob", "advantages", "rollout_is_weights", "ref_log_prob", "entropy"]
)
def test_policy_loss_inputs_name_the_tensor_that_does_not_fit(name):
    fields = {"log_prob": ZEROS, "old_log_prob": ZEROS, "advantages": ZEROS, name: torch.zeros(2, 5)}
    with pytest.raises(ShapeError, match=rf"{name} \(2, 5\).*response_mask \(2, 3\)"):
        PolicyLossInputs(response_mask=MASK, totals=TOTALS, **fields)


@pytest.mark.parametrize("name", ["values", "old_values", "returns"])
def test_value_loss_inputs_name_the_tensor_that_does_not_fit(name):
    fields = {"values": ZEROS, "old_values": ZEROS, "returns": ZEROS, name: torch.zeros(3, 3)}
    with pytest.raises(ShapeError, match=rf"{name} \(3, 3\).*response_mask \(2, 3\)"):
        ValueLossInputs(response_mask=MASK, totals=TOTALS, **fields)


def test_records_are_frozen():
    inputs = AdvantageInputs(token_level_rewards=ZEROS, response_mask=MASK)
    with pytest.raises(AttributeError):
        inputs.values = ZEROS
