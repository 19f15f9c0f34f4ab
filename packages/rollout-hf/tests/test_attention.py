from __future__ import annotations

from types import SimpleNamespace

import pytest
import rl_rollout_hf.attention
import torch
from rl_rollout_hf.attention import ROWS, fitting_kernels, row_attention
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

B, HEADS, SHARED, DIM, COLUMNS = 3, 6, 2, 8, 11
MODULE = SimpleNamespace(num_key_value_groups=HEADS // SHARED, is_causal=True, training=False)


def tensors(length=1, heads=HEADS):
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(B, heads, length, DIM, generator=generator)
    key, value = (torch.randn(B, SHARED, COLUMNS, DIM, generator=generator) for _ in range(2))
    mask = (torch.arange(COLUMNS) <= torch.tensor([2, 10, 0])[:, None])[:, None, None]
    return query, key, value, mask


def by_definition(query, key, value, mask, scaling):
    groups = query.shape[1] // key.shape[1]
    scores = query @ key.repeat_interleave(groups, dim=1).transpose(2, 3) * scaling
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    return (weights @ value.repeat_interleave(groups, dim=1)).transpose(1, 2)


@pytest.mark.parametrize("heads", [HEADS, SHARED])
def test_a_step_is_attention_with_repeated_heads(heads):
    query, key, value, mask = tensors(heads=heads)
    module = SimpleNamespace(num_key_value_groups=heads // SHARED, is_causal=True, training=False)
    output, weights = row_attention(module, query, key, value, mask, scaling=0.3, dropout=0.0)
    assert weights is None
    torch.testing.assert_close(output, by_definition(query, key, value, mask, 0.3))


def test_a_prompt_is_read_as_transformers_does():
    query, key, value, _ = tensors(length=COLUMNS)
    output, _ = row_attention(MODULE, query, key, value, None, scaling=0.3)
    causal = torch.ones(COLUMNS, COLUMNS).tril().bool()
    torch.testing.assert_close(output, by_definition(query, key, value, causal, 0.3))


def test_what_the_step_does_not_know_is_left_to_transformers(monkeypatch):
    seen = []
    monkeypatch.setattr(rl_rollout_hf.attention, "sdpa_attention_forward", lambda *a, **options: seen.append(options))
    row_attention(MODULE, *tensors(), softcap=30.0)
    row_attention(MODULE, *tensors(), position_bias=torch.zeros(1))
    assert [sorted(options) for options in seen] == [["softcap"], ["position_bias"]]


def test_transformers_knows_it_by_name():
    assert ALL_ATTENTION_FUNCTIONS[ROWS] is row_attention


def test_a_cpu_has_no_kernels_to_choose_from():
    before = torch.backends.cuda.cudnn_sdp_enabled()
    with fitting_kernels(torch.device("cpu")):
        assert torch.backends.cuda.cudnn_sdp_enabled() == before
    with fitting_kernels(torch.device("cuda")):
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    assert torch.backends.cuda.cudnn_sdp_enabled() == before
