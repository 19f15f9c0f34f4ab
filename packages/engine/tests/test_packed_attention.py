"""Attention over packed sequences, each by itself."""

from __future__ import annotations

import pytest
import torch
from rl_engine.attention import choose_attention
from rl_engine.packed_attention import PACKED, Layout, packed_as, packed_attention
from rl_engine.packing import pack
from rl_engine.token_model import PolicyModel
from rl_testing.models import tiny_model
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

UNEQUAL = [[7], [3, 3, 3], [5, 1, 12, 6, 2, 11], [4, 0, 4]]


def states(total: int, heads: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, heads, total, 8, generator=generator, dtype=torch.float64).requires_grad_()


def one_by_one(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    parts = zip(*(tensor.split(lengths, dim=2) for tensor in (query, key, value)), strict=True)
    outputs = [scaled_dot_product_attention(*part, is_causal=True, enable_gqa=True) for part in parts]
    return torch.cat(outputs, dim=2).transpose(1, 2)


@pytest.mark.parametrize("lengths", UNEQUAL)
def test_the_same_as_each_sequence_alone(lengths):
    inputs = [states(sum(lengths), heads, seed) for seed, heads in enumerate((4, 2, 2))]
    found, weights = packed_attention(nn.Identity(), *inputs, Layout(lengths, "cpu"))
    expected = one_by_one(*inputs, [size for size in lengths if size])
    assert weights is None
    torch.testing.assert_close(found, expected)
    direction = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, inputs, direction), torch.autograd.grad(expected, inputs, direction)
    )


def test_equal_lengths_are_one_group_that_copies_nothing():
    layout = Layout([3, 3, 3], "cpu")
    assert [(group.count, group.length, group.places) for group in layout.groups] == [(3, 3, None)]
    assert layout.order is None


def test_a_group_holds_what_is_more_than_half_as_long_as_its_longest():
    layout = Layout([5, 1, 12, 6, 2, 11], "cpu")
    assert [(group.count, group.length) for group in layout.groups] == [(2, 12), (2, 6), (1, 2), (1, 1)]
    assert layout.longest == 12


@pytest.mark.parametrize("wish", [{"softcap": 30.0}, {"is_causal": False}])
def test_what_is_not_done_here_is_refused(wish):
    with pytest.raises(ValueError, match="attention over packed sequences knows no"):
        packed_attention(
            nn.Identity(), states(4, 2, 0), states(4, 2, 1), states(4, 2, 2), Layout([2, 2], "cpu"), **wish
        )


CPU = torch.device("cpu")


def chosen(module: PolicyModel, inputs) -> str:
    return choose_attention(module.hf_config, CPU, torch.float64, lambda: module.hidden_states(inputs).detach())


def policy(model_type: str = "qwen2", **fields) -> PolicyModel:
    return PolicyModel(tiny_model(model_type, **fields).double())


def inputs_of(lengths: list[int]):
    ids = torch.arange(sum(lengths)) * 7 % 250
    return pack(ids, lengths, [1] * len(lengths))


@pytest.mark.parametrize("model_type", ["qwen2", "llama", "gpt2"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_model_comes_to_the_same_forward_and_backward(model_type, checkpointing):
    module = policy(model_type).train()
    if checkpointing:
        module.backbone.gradient_checkpointing_enable({"use_reentrant": False})
    inputs = inputs_of([5, 9, 4, 2])
    expected = module.hidden_states(inputs)
    wanted = torch.autograd.grad(expected.square().sum(), [*module.backbone.parameters()], allow_unused=True)
    assert chosen(module, inputs) == PACKED
    found = module.hidden_states(inputs)
    torch.testing.assert_close(found, expected)
    gradients = torch.autograd.grad(found.square().sum(), [*module.backbone.parameters()], allow_unused=True)
    torch.testing.assert_close(gradients, wanted)


def test_a_window_that_is_shorter_than_a_sequence_is_kept():
    module = policy("mistral", sliding_window=3)
    inputs = inputs_of([5, 9, 2])
    expected = module.hidden_states(inputs)
    assert chosen(module, inputs) == PACKED
    torch.testing.assert_close(module.hidden_states(inputs), expected)


def test_a_pass_that_is_no_pack_is_as_before():
    module = policy()
    ids = torch.arange(12).view(2, 6)
    expected = module.backbone(input_ids=ids, use_cache=False).last_hidden_state
    inputs = inputs_of([5, 9])
    assert chosen(module, inputs) == PACKED
    torch.testing.assert_close(module.backbone(input_ids=ids, use_cache=False).last_hidden_state, expected)


def test_the_layout_ends_with_its_block():
    module = policy()
    inputs = inputs_of([5, 9])
    module.hf_config._attn_implementation = PACKED
    with packed_as(Layout([7, 7], "cpu")):
        pass
    arguments = inputs.arguments()
    found = module.backbone(**arguments).last_hidden_state
    module.hf_config._attn_implementation = "sdpa"
    torch.testing.assert_close(found, module.backbone(**arguments).last_hidden_state)
