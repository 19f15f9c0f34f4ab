from __future__ import annotations

import math

import pytest
import torch
from rl_core.algorithms.preference_loss import bradley_terry


def tensor(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def test_numbers_by_hand():
    loss = bradley_terry(tensor(2.0, 0.0, 1.0), tensor(1.0, 0.0, 3.0), tensor(0.0, 0.0, 1.0))
    expected = [math.log(1 + math.exp(-1)), math.log(2), math.log(1 + math.exp(3))]
    assert loss.tolist() == pytest.approx(expected, abs=1e-12)


def test_centering_says_where_scores_lie_and_nothing_about_their_difference():
    plain = bradley_terry(tensor(2.0, 1.0), tensor(1.0, -1.0), tensor(0.0, 0.0))
    centred = bradley_terry(tensor(2.0, 1.0), tensor(1.0, -1.0), tensor(0.0, 0.0), 0.01)
    assert (centred - plain).tolist() == pytest.approx([0.09, 0.0], abs=1e-12)


def test_gradient_is_the_chance_of_being_wrong():
    chosen = tensor(0.5).requires_grad_()
    (gradient,) = torch.autograd.grad(bradley_terry(chosen, tensor(0.0), tensor(0.25)).sum(), chosen)
    assert float(gradient) == pytest.approx(-1 / (1 + math.exp(0.25)))


def test_scores_far_apart_stay_finite():
    loss = bradley_terry(tensor(1e4, -1e4), tensor(-1e4, 1e4), tensor(0.0, 0.0))
    assert loss.tolist() == [0.0, 2e4]
