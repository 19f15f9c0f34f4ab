import logging
from types import SimpleNamespace

import pytest
import torch
from rl_core.contracts.engine import EngineRole
from rl_core.errors import ConfigError
from rl_engine.experts import say_router_loss
from rl_engine.loading import load_token_model
from rl_testing.models import save_tiny_model, tiny_model

SIZES = {"vocab_size": 33, "hidden_size": 16, "num_heads": 2, "num_key_value_heads": 1}
MOE = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8}
ATTENTION = [f"model.layers.{layer}.self_attn.{part}_proj" for layer in (0, 1) for part in "qkvo"]
SHARED = [f"model.layers.{layer}.mlp.shared_expert.{part}_proj" for layer in (0, 1) for part in ("down", "gate", "up")]


def load(folder, model_type, *, is_trained=True, **model):
    fields = {"shared_expert_intermediate_size": 12} if model_type == "qwen2_moe" else {}
    path = save_tiny_model(folder, model_type=model_type, with_tokenizer=False, **SIZES, **MOE, **fields)
    section = SimpleNamespace(path=str(path), **model)
    return load_token_model(EngineRole.POLICY, section, torch.float32, temperature=1.0, is_trained=is_trained)


def test_the_loss_that_balances_experts_is_said_to_be_left_out(tmp_path, caplog):
    load(tmp_path, "qwen3_moe")
    assert "qwen3_moe: router_aux_loss_coef=0.001 has no effect" in caplog.text
    caplog.clear()
    load(tmp_path, "qwen3_moe", is_trained=False)
    load(tmp_path, "qwen3_moe", override_config={"router_aux_loss_coef": 0.0})
    assert "router_aux_loss_coef" not in caplog.text


@pytest.mark.parametrize("asked", [{"router_aux_loss_coef": 0.01}, {"output_router_logits": True}])
def test_asking_for_the_loss_that_balances_experts_is_refused(asked):
    config = tiny_model("qwen3_moe", **SIZES, **MOE).config
    with pytest.raises(ConfigError, match=f"override_config.{min(asked)} asks for .* Leave the key out"):
        say_router_loss(config, asked)
    say_router_loss(tiny_model("qwen2", **SIZES).config, asked)


@pytest.mark.parametrize(
    ("model_type", "targets", "expected"),
    [
        ("qwen3_moe", "all-linear", ATTENTION),
        ("qwen3_moe", r".*\.0\.self_attn\..*_proj", ATTENTION[:4]),
        ("qwen3_moe", ["q_proj"], [name for name in ATTENTION if name.endswith("q_proj")]),
        ("qwen2_moe", ["gate_proj"], [name for name in SHARED if name.endswith("gate_proj")]),
        (
            "qwen2_moe",
            "all-linear",
            [*ATTENTION, *SHARED, *(f"model.layers.{n}.mlp.shared_expert_gate" for n in (0, 1))],
        ),
    ],
)
def test_adapters_are_on_linear_layers_alone(tmp_path, caplog, model_type, targets, expected):
    caplog.set_level(logging.WARNING)
    module = load(tmp_path, model_type, lora_rank=2, lora_alpha=4, target_modules=targets)
    assert sorted(module.adapter.layer_names) == sorted(expected)
    assert "the experts (4 tensors, such as model.layers.0.mlp.experts.gate_up_proj) get no adapters" in caplog.text
    assert {a.shape[0] for name, a in module.adapter.named_tensors() if "lora_A" in name} == {2}


@pytest.mark.parametrize("target", ["gate_proj", "gate_up_proj", "experts.1.down_proj"])
def test_adapters_on_experts_are_refused_by_name(tmp_path, target):
    with pytest.raises(ConfigError, match=f"names '{target}', which is only in experts \\(model.layers.0.mlp.experts"):
        load(tmp_path, "qwen3_moe", lora_rank=2, lora_alpha=4, target_modules=["q_proj", target])


def test_a_pattern_for_experts_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="Qwen3MoeExperts"):
        load(tmp_path, "qwen3_moe", lora_rank=2, lora_alpha=4, target_modules=r".*(q_proj|\.experts)")
