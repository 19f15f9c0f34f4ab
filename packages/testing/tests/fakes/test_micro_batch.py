from __future__ import annotations

import pytest
import torch
from rl_core.errors import DataError
from rl_dataproto import DataProto, jagged_from_rows
from rl_testing.fakes.micro_batch import OpenBatch, jagged


def batch(*rows, mask=None):
    """Rows are (prompt, response)."""
    tensors = {
        "input_ids": jagged_from_rows([torch.tensor([*prompt, *response]) for prompt, response in rows]),
        "responses": jagged_from_rows([torch.tensor(response, dtype=torch.int64) for _, response in rows]),
    }
    if mask is not None:
        tensors["response_mask"] = jagged_from_rows([torch.tensor(one, dtype=torch.int64) for one in mask])
    return DataProto.from_dict(tensors=tensors)


def test_positions_tokens_and_padding():
    opened = OpenBatch.of(batch(([5, 6], [7]), ([1], [2, 3]), ([9, 9], []), mask=[[1], [0, 1], []]))

    micro = opened.take([1, 2, 0])

    assert micro.ids.tolist() == [[1, 2, 3], [9, 9, 0], [5, 6, 7]]
    assert micro.row.tolist() == [0, 0, 2]
    assert micro.place.tolist() == [0, 1, 0]
    assert micro.position.tolist() == [1, 2, 2]
    assert micro.tokens.tolist() == [2, 3, 7]
    assert micro.response_lengths == [2, 0, 1]
    assert micro.response_mask().tolist() == [[False, True], [False, False], [True, False]]
    assert micro.rows().batch["responses"].values().tolist() == [2, 3, 7]


def test_padding_is_nan_and_takes_no_gradient():
    micro = OpenBatch.of(batch(([5], [7, 8]), ([1], [2]))).take([0, 1])
    per_token = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)

    padded = micro.padded(per_token)
    loss = torch.where(micro.response_mask(), padded.exp(), torch.zeros(2, 2)).sum()
    (gradient,) = torch.autograd.grad(loss, per_token)

    assert padded[1, 1].isnan()
    torch.testing.assert_close(gradient, per_token.detach().exp())


def test_no_rows():
    micro = OpenBatch.of(batch(([5], [7]))).take([])

    assert micro.is_empty
    assert micro.ids.shape == micro.response_mask().shape == (0, 0)
    assert len(micro.rows()) == len(micro.tokens) == 0


def test_a_response_needs_a_token_before_it():
    with pytest.raises(DataError, match="row 1 has 2 input_ids and 2 responses"):
        OpenBatch.of(batch(([1], [2]), ([], [3, 4])))


def test_missing_columns_are_named():
    with pytest.raises(DataError, match=r"lacks the columns \['responses'\]; it has \['input_ids'\]"):
        OpenBatch.of(batch(([1], [2])).select(["input_ids"]))


def test_a_jagged_column_may_have_no_rows():
    assert jagged([], torch.float64).shape[0] == 0
    assert jagged([torch.ones(2), torch.ones(0)], torch.float64).offsets().tolist() == [0, 2, 2]
