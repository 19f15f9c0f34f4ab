import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.algorithms.inputs import LossTotals
from rl_core.contracts.engine import TokenOutputs
from rl_core.errors import ShapeError
from rl_dataproto import DataProto, jagged_from_rows
from rl_recipes.prime.loss import (
    REFERENCE_COLUMN,
    ImplicitRewardLoss,
    implicit_rewards,
    outcome_cross_entropy,
    outcomes_of,
    told_apart,
)

NAN = float("nan")
MASK = torch.tensor([[True, False, True], [True, False, False]])


def test_hand_numbers():
    log_prob = torch.tensor([[-1.0, NAN, -2.0], [-3.0, NAN, NAN]], requires_grad=True)
    reference = torch.tensor([[-2.0, NAN, -4.0], [-1.0, NAN, NAN]])
    rewards = implicit_rewards(log_prob, reference, MASK, 0.5)
    assert rewards.tolist() == [[0.5, 0.0, 1.0], [-1.0, 0.0, 0.0]]

    loss = outcome_cross_entropy(rewards, MASK, torch.tensor([1.0, 0.0]), LossTotals(3, 2, 3))
    wanted = -(math.log(1 / (1 + math.exp(-1.5))) + math.log(1 - 1 / (1 + math.exp(1.0)))) / 2
    assert loss.item() == pytest.approx(wanted)
    loss.backward()
    # d/dlogit of the cross-entropy is sigmoid(logit) - outcome; each token of a row has the same share.
    first, second = 0.25 * (1 / (1 + math.exp(-1.5)) - 1), 0.25 / (1 + math.exp(1.0))
    assert log_prob.grad.tolist() == [pytest.approx([first, 0.0, first]), pytest.approx([second, 0.0, 0.0])]


def test_an_untrained_model_is_undecided():
    rewards = implicit_rewards(torch.zeros(2, 3), torch.zeros(2, 3), MASK, 0.05)
    loss = outcome_cross_entropy(rewards, MASK, torch.tensor([1.0, 0.0]), LossTotals(3, 2, 3))
    assert float(loss) == pytest.approx(math.log(2))


@pytest.mark.parametrize("distance", [1e3, -1e3, 1e6, -1e6])
def test_extreme_log_ratios_have_a_finite_gradient(distance):
    log_prob = torch.full((2, 3), distance, requires_grad=True)
    rewards = implicit_rewards(log_prob, torch.zeros(2, 3), MASK, 1.0)
    loss = outcome_cross_entropy(rewards, MASK, torch.tensor([1.0, 0.0]), LossTotals(3, 2, 3))
    loss.backward()
    assert math.isfinite(loss.item())
    assert torch.isfinite(log_prob.grad).all()


def test_rows_without_tokens_add_nothing_and_none_at_all_is_zero():
    empty = torch.zeros(2, 3, dtype=torch.bool)
    log_prob = torch.full((2, 3), NAN, requires_grad=True)
    rewards = implicit_rewards(log_prob, torch.full((2, 3), NAN), empty, 1.0)
    loss = outcome_cross_entropy(rewards, empty, torch.tensor([1.0, 0.0]), LossTotals(0, 0, 3))
    loss.backward()
    assert loss.item() == 0.0
    assert log_prob.grad.count_nonzero() == 0


def test_what_is_refused():
    with pytest.raises(ShapeError, match="ref_log_prob"):
        implicit_rewards(torch.zeros(2, 3), torch.zeros(2, 2), MASK, 1.0)
    with pytest.raises(ShapeError, match="said to hold no sequence"):
        outcome_cross_entropy(torch.zeros(2, 3), MASK, torch.zeros(2), LossTotals(0, 0, 3))
    with pytest.raises(ShapeError, match="outcomes"):
        outcome_cross_entropy(torch.zeros(2, 3), MASK, torch.zeros(3), LossTotals(3, 2, 3))


def micro_batch(log_probs, references, outcomes):
    scores = [[0.0] * (len(row) - 1) + [outcome] for row, outcome in zip(references, outcomes, strict=True)]
    batch = DataProto.from_dict(
        tensors={
            REFERENCE_COLUMN: jagged_from_rows([torch.tensor(row, dtype=torch.float64) for row in references]),
            "token_level_scores": jagged_from_rows([torch.tensor(row, dtype=torch.float64) for row in scores]),
        }
    )
    width = max(map(len, log_probs))
    padded = torch.tensor([row + [NAN] * (width - len(row)) for row in log_probs], dtype=torch.float64)
    mask = torch.tensor([[True] * len(row) + [False] * (width - len(row)) for row in log_probs])
    return TokenOutputs(response_mask=mask, log_probs=padded), batch


ROW = st.tuples(st.lists(st.floats(-5, 0), min_size=1, max_size=4), st.sampled_from([0.0, 0.4, 1.0]))


@settings(deadline=None, max_examples=40)
@given(st.lists(ROW, min_size=2, max_size=6), st.integers(1, 5))
def test_shares_add_up_over_any_cut(data, cut):
    log_probs, outcomes = [row for row, _ in data], [outcome for _, outcome in data]
    references = [[value / 2 - 1 for value in row] for row in log_probs]
    totals = LossTotals(sum(map(len, log_probs)), len(data), 4)
    loss = ImplicitRewardLoss(0.5, totals)

    def shares(first, last):
        value, metrics = loss(*micro_batch(log_probs[first:last], references[first:last], outcomes[first:last]))
        return [float(value), *(metric.value for metric in metrics.values())]

    cut = min(cut, len(data) - 1)
    whole, parts = shares(0, len(data)), zip(shares(0, cut), shares(cut, len(data)), strict=True)
    assert [one + two for one, two in parts] == pytest.approx(whole, abs=1e-12)


def test_metrics_of_a_micro_batch():
    # Rewards 0.5 and -1.5 for a right and a wrong response, 1.0 for a wrong one: two of three are told.
    outputs, batch = micro_batch([[-1.0], [-2.0, -2.0], [-1.0]], [[-2.0], [-1.0, 0.0], [-3.0]], [1.0, 0.0, 0.0])
    _, metrics = ImplicitRewardLoss(0.5, LossTotals(4, 3, 4))(outputs, batch)
    assert metrics["reward_model/accuracy"].value == pytest.approx(2 / 3)
    assert metrics["reward_model/implicit_reward"].value == pytest.approx((0.5 - 1.5 + 1.0) / 3)
    assert outcomes_of(batch).tolist() == [1.0, 0.0, 0.0]


def test_an_undecided_model_is_half_right():
    rewards = torch.tensor([1e-9, -1e-9, 0.0, 0.2, -0.2, 0.2])
    assert told_apart(rewards, torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0, 0.0])).tolist() == [0.5, 0.5, 0.5, 1.0, 0.0, 0.0]


def test_an_engine_that_gives_no_log_probs_is_at_fault():
    outputs, batch = micro_batch([[-1.0]], [[-1.0]], [1.0])
    without = SimpleNamespace(response_mask=outputs.response_mask, log_probs=None)
    with pytest.raises(RuntimeError, match="fault of the engine"):
        ImplicitRewardLoss(0.5, LossTotals(1, 1, 4))(without, batch)
