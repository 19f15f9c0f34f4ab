"""The kernel runs on a GPU alone; here a slow stand-in with its signature shows what it is called with."""

import pytest
import torch
from rl_engine import varlen_attention
from rl_engine.attention import choose_attention
from rl_engine.packed_attention import Layout, packed_as
from rl_engine.packing import pack
from rl_engine.token_model import PolicyModel
from rl_engine.varlen_attention import VARLEN
from rl_testing.models import tiny_model
from torch import nn


def slow_kernel(query, key, value, cu_q, cu_k, max_q, max_k, *, scale=None, window_size=(-1, -1), enable_gqa=False):
    """Each sequence by itself, each query by itself."""
    assert query.shape[0] == int(cu_q[-1])
    assert max_q == int(cu_q.diff().max())
    assert enable_gqa or query.shape[1] == key.shape[1]
    repeats = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    left, right = window_size
    assert right == 0
    rows = []
    for start, end in zip(cu_q[:-1].tolist(), cu_q[1:].tolist(), strict=True):
        for token in range(start, end):
            first = start if left < 0 else max(start, token - left)
            scores = torch.einsum("hd,thd->ht", query[token], key[first : token + 1])
            weights = (scores * (scale or query.shape[-1] ** -0.5)).softmax(-1)
            rows.append(torch.einsum("ht,thd->hd", weights, value[first : token + 1]))
    return torch.stack(rows)


@pytest.fixture(autouse=True)
def kernel(monkeypatch):
    monkeypatch.setattr(varlen_attention, "_KERNEL", (slow_kernel, True))


def inputs_of(lengths):
    return pack(torch.arange(sum(lengths)) * 7 % 250, lengths, [1] * len(lengths))


@pytest.mark.parametrize(
    ("model_type", "fields"), [("qwen2", {}), ("llama", {}), ("mistral", {"sliding_window": 3}), ("gemma3_text", {})]
)
def test_models_come_to_the_same_as_with_a_mask(model_type, fields):
    module = PolicyModel(tiny_model(model_type, **fields).double())
    inputs = inputs_of([5, 9, 1, 4])
    expected = module.hidden_states(inputs)
    module.hf_config._attn_implementation = VARLEN
    torch.testing.assert_close(module.hidden_states(inputs), expected)


def test_a_padded_pass_is_as_before():
    module = PolicyModel(tiny_model("qwen2").double())
    ids = torch.arange(12).view(2, 6)
    expected = module.backbone(input_ids=ids, use_cache=False).last_hidden_state
    module.hf_config._attn_implementation = VARLEN
    torch.testing.assert_close(module.backbone(input_ids=ids, use_cache=False).last_hidden_state, expected)


def test_what_it_cannot_do_is_refused():
    states = torch.zeros(1, 2, 3, 4)
    with pytest.raises(ValueError, match="softcap"):
        varlen_attention.varlen_attention(nn.Identity(), states, states, states, Layout([3], "cpu"), softcap=30.0)
    with pytest.raises(ValueError, match="dropout"):
        varlen_attention.varlen_attention(nn.Identity(), states, states, states, Layout([3], "cpu"), dropout=0.1)


def test_a_model_whose_layers_want_more_keeps_its_own():
    module = PolicyModel(tiny_model("gemma2").double())
    inputs = inputs_of([5, 9])
    found = choose_attention(
        module.hf_config, torch.device("cuda"), torch.bfloat16, lambda: module.hidden_states(inputs).detach()
    )
    assert found in ("sdpa", "eager")


def test_offsets_of_a_layout():
    with packed_as(Layout([2, 0, 3], "cpu")) as _:
        layout = varlen_attention.current_layout()
    assert layout is not None
    assert layout.offsets.tolist() == [0, 2, 5]
    assert layout.offsets.dtype == torch.int32
