from __future__ import annotations

import math

import pytest
import torch
from rl_testing.contracts.engine_batch import (
    Row,
    as_batch,
    make_rows,
    num_tokens,
    slow_log_probs,
    slow_sgd,
    slow_squares,
    slow_values,
)


def row(prompt, response):
    return Row(
        prompt=torch.tensor(prompt),
        response=torch.tensor(response),
        mask=torch.ones(len(response), dtype=torch.bool),
        advantages=torch.ones(len(response), dtype=torch.float64),
    )


def table(weights, ids):
    """Logits by position, whatever the tokens are."""
    return weights["table"][: len(ids)]


def test_log_probs_are_gathered_from_the_row_before():
    two, three, five = math.log(2), math.log(3), math.log(5)
    logits = torch.tensor([[0, 0, 0, 0], [0, two, 0, 0], [three, 0, 0, 0], [0, 0, five, 0]], dtype=torch.float64)

    log_probs, _ = slow_log_probs(table, {"table": logits}, row([3, 0], [2, 1]), temperature=1.0)

    assert log_probs.tolist() == pytest.approx([math.log(1 / 5), math.log(1 / 6)])


def test_temperature_divides_the_logits():
    logits = torch.tensor([[0, math.log(9)], [0, 0]], dtype=torch.float64)

    log_probs, entropy = slow_log_probs(table, {"table": logits}, row([0], [1]), temperature=2.0)

    assert log_probs.tolist() == pytest.approx([math.log(3 / 4)])
    assert entropy.tolist() == pytest.approx([0.75 * math.log(4 / 3) + 0.25 * math.log(4)])


def test_squared_probabilities_are_summed_in_the_row_before_at_the_temperature():
    logits = torch.tensor([[0, math.log(9)], [0, 0]], dtype=torch.float64)

    squares = slow_squares(table, {"table": logits}, row([0], [1]), temperature=2.0)

    assert squares.tolist() == pytest.approx([1 / 16 + 9 / 16])


def test_a_value_stands_before_its_token():
    values = slow_values(lambda weights, ids: weights["v"][: len(ids)], {"v": torch.arange(5.0)}, row([0, 0], [0, 0]))

    assert values.tolist() == [1.0, 2.0]


def test_gradient_descent_on_a_parabola():
    first, second = slow_sgd(lambda weights: weights["x"].square().sum(), {"x": torch.tensor([3.0])}, lr=0.25, steps=2)

    assert (first.loss, first.grad_norm, first.weights["x"].item()) == (9.0, 6.0, 1.5)
    assert (second.loss, second.grad_norm, second.weights["x"].item()) == (2.25, 3.0, 0.75)


def test_the_batch_is_awkward_enough():
    rows = make_rows(13)

    assert [len(one.response) for one in rows] == [3, 6, 1, 4, 0, 2, 5]
    assert not rows[3].mask.any()
    assert any(one.mask.any() and not one.mask.all() for one in rows)
    batch = as_batch(rows, marked=[2])
    assert len(batch) == 7
    assert batch.batch["marked"].nonzero().tolist() == [[2]]
    assert num_tokens(rows) == int(batch.batch["response_mask"].values().sum())
