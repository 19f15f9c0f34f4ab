import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.algorithms.logprobs import response_log_probs
from rl_core.algorithms.positions import position_ids
from rl_core.errors import ShapeError


def test_b44_left_padded_prompt_and_response():
    mask = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1]])
    assert position_ids(mask).tolist() == [[0, 0, 0, 0, 1, 2, 3, 4]]
    assert position_ids(mask.bool()).tolist() == [[0, 0, 0, 0, 1, 2, 3, 4]]


def test_b44_two_sequences_packed_in_one_row():
    assert position_ids(torch.tensor([[1, 1, 1, 2, 2]])).tolist() == [[0, 1, 2, 0, 1]]
    assert position_ids(torch.tensor([[1, 1, 1, 2, 2, 0]]))[:, :5].tolist() == [[0, 1, 2, 0, 1]]


def test_a_hole_in_the_middle_does_not_restart_the_count():
    ids = position_ids(torch.tensor([[1, 1, 0, 0, 1, 1]]))
    assert ids[0, [0, 1, 4, 5]].tolist() == [0, 1, 2, 3]


def test_rows_without_tokens_and_without_width():
    assert position_ids(torch.zeros(2, 3, dtype=torch.int64)).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert position_ids(torch.zeros(2, 0, dtype=torch.bool)).shape == (2, 0)
    assert position_ids(torch.zeros(0, 3, dtype=torch.bool)).shape == (0, 3)


@settings(deadline=None, max_examples=40)
@given(lengths=st.lists(st.integers(1, 5), max_size=4), left=st.integers(0, 3), right=st.integers(0, 3))
def test_every_sequence_of_a_packed_row_counts_from_zero(lengths, left, right):
    row = [0] * left + [i + 1 for i, n in enumerate(lengths) for _ in range(n)] + [0] * right
    ids = position_ids(torch.tensor([row], dtype=torch.int64)).tolist()[0]
    assert ids[left : left + sum(lengths)] == [p for n in lengths for p in range(n)]
    assert all(0 <= p < 20 for p in ids)


def test_another_rank_is_refused():
    with pytest.raises(ShapeError, match=r"\(3,\)"):
        position_ids(torch.ones(3))


class _TinyCausalModel(torch.nn.Module):
    """One attention layer with learned absolute positions, as in GPT-2."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places = torch.nn.Embedding(12, 8), torch.nn.Embedding(16, 8)
        self.qkv, self.head = torch.nn.Linear(8, 24), torch.nn.Linear(8, 12)

    def forward(self, ids, attention_mask, positions):
        x = self.words(ids) + self.places(positions)
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        length = ids.shape[1]
        allowed = torch.ones(length, length).tril().bool() & attention_mask[:, None, :].bool()
        allowed = allowed | torch.eye(length).bool()
        attention = (q @ k.transpose(1, 2)).masked_fill(~allowed, float("-inf")).softmax(-1)
        return self.head(x + attention @ v)


def test_b44_left_padding_does_not_change_the_log_probs():
    model = _TinyCausalModel()
    plain = torch.tensor([[7, 8, 9, 4, 5]])
    padded = torch.nn.functional.pad(plain, (3, 0))
    with torch.no_grad():
        expected, _ = response_log_probs(model(plain, plain > 0, torch.arange(5)[None]), plain, 3)
        found, _ = response_log_probs(model(padded, padded > 0, position_ids(padded > 0)), padded, 6)
        blind, _ = response_log_probs(model(padded, padded > 0, torch.arange(8)[None]), padded, 6)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert (blind - expected).abs().max() > 1e-3
