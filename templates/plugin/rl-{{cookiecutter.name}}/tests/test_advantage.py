from __future__ import annotations

import numpy as np
import pytest
import torch
from rl_core.algorithms.inputs import AdvantageInputs
from rl_core.errors import DataError
from rl_{{cookiecutter.name}}.advantage import leave_one_out


def advantages(scores, uid, lengths):
    mask = torch.arange(3) < torch.tensor(lengths).unsqueeze(1)
    rewards = torch.zeros(mask.shape)
    for row, (score, length) in enumerate(zip(scores, lengths, strict=True)):
        rewards[row, max(length - 1, 0)] = score
    inputs = AdvantageInputs(token_level_rewards=rewards, response_mask=mask, uid=uid)
    result, returns = leave_one_out(inputs, config=None)
    assert torch.equal(result, returns)
    return result


def test_others_are_the_baseline():
    found = advantages([1.0, 0.0, 0.5, 4.0], np.array(["p", "p", "p", "q"]), [1, 2, 3, 3])
    expected = torch.tensor([[0.75, 0, 0], [-0.75, -0.75, 0], [0, 0, 0], [0, 0, 0]])
    torch.testing.assert_close(found, expected)


def test_missing_rewards_and_empty_responses_count_for_nobody():
    found = advantages([1.0, float("nan"), 0.0, 9.0], np.array(["p"] * 4), [1, 1, 1, 0])
    assert found[:, 0].tolist() == [1.0, 0.0, -1.0, 0.0]


def test_groups_are_needed():
    with pytest.raises(DataError, match="no uid column"):
        advantages([1.0], None, [1])
