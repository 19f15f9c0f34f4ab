from __future__ import annotations

import torch
from rl_rollout_vllm.naming import as_loaded, as_wrapped, made_of, wrapped_pieces
from torch import nn

EXPERTS = "model.layers.0.mlp.experts"


def test_fused_experts_become_one_tensor_an_expert():
    """The numbers of a layer with 2 experts, 2 rows of each projection and 3 inputs."""
    fused = torch.arange(24).reshape(2, 4, 3)
    loaded = dict(as_loaded(f"{EXPERTS}.gate_up_proj", fused, "qwen3_moe"))
    assert {name: tensor.tolist() for name, tensor in loaded.items()} == {
        f"{EXPERTS}.0.gate_proj.weight": [[0, 1, 2], [3, 4, 5]],
        f"{EXPERTS}.0.up_proj.weight": [[6, 7, 8], [9, 10, 11]],
        f"{EXPERTS}.1.gate_proj.weight": [[12, 13, 14], [15, 16, 17]],
        f"{EXPERTS}.1.up_proj.weight": [[18, 19, 20], [21, 22, 23]],
    }
    down = torch.arange(12).reshape(2, 3, 2)
    loaded = dict(as_loaded(f"{EXPERTS}.down_proj", down, "qwen3_moe"))
    assert list(loaded) == [f"{EXPERTS}.0.down_proj.weight", f"{EXPERTS}.1.down_proj.weight"]
    assert loaded[f"{EXPERTS}.1.down_proj.weight"].equal(down[1])


def test_fused_experts_are_views():
    fused = torch.zeros(2, 4, 3)
    for _, part in as_loaded(f"{EXPERTS}.gate_up_proj", fused, "qwen3_moe"):
        part += 1
    assert fused.eq(1).all()


def test_everything_else_keeps_its_name():
    for name, shape, kind in (
        ("model.norm.weight", (3,), "qwen2"),
        ("model.layers.0.mlp.gate_up_proj.weight", (4, 3), "phi3"),
        (f"{EXPERTS}.gate_up_proj", (2, 4, 3), "gpt_oss"),
        (f"{EXPERTS}.0.up_proj.weight", (4, 3), "qwen3_moe"),
    ):
        tensor = torch.zeros(shape)
        assert [(found, one is tensor) for found, one in as_loaded(name, tensor, kind)] == [(name, True)]


def test_fused_layers_are_made_of_their_parts():
    model = nn.Module()
    model.packed_modules_mapping = {"in_proj": ["x_proj", "z_proj"]}
    layer = "model.layers.0"
    assert made_of(f"{layer}.attn.qkv_proj.base_layer.bias", model, 0) == [
        f"{layer}.attn.{one}_proj.bias" for one in "qkv"
    ]
    assert made_of(f"{layer}.in_proj.weight", model, 0) == [f"{layer}.x_proj.weight", f"{layer}.z_proj.weight"]
    assert made_of(f"{layer}.mlp.experts.routed_experts.w13_weight", model, 2) == [
        f"{layer}.mlp.experts.{expert}.{part}.weight" for expert in (0, 1) for part in ("gate_proj", "up_proj")
    ]
    assert made_of("model.norm.weight", model, 0) == ["model.norm.weight"]


class _Wrapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base_layer = nn.Linear(2, 2)


class _LoadsItself(_Wrapped):
    def load_weights(self) -> None: ...


def test_layers_that_can_have_adapters_hold_their_weight_deeper():
    model = nn.Module()
    model.qkv_proj, model.o_proj, model.norm = _Wrapped(), _LoadsItself(), nn.Linear(2, 2)
    pieces = wrapped_pieces(model)
    assert pieces == {"qkv_proj", "q_proj", "k_proj", "v_proj"}
    assert as_wrapped("a.q_proj.weight", pieces) == "a.q_proj.base_layer.weight"
    assert as_wrapped("a.o_proj.weight", pieces) == "a.o_proj.weight"
    assert as_wrapped("embed", pieces) == "embed"
