from __future__ import annotations

import pytest
import torch
from rl_core.errors import ConfigError
from rl_rollout_hf.model import build_empty, cache_argument, named_weights, require_servable
from rl_rollout_hf.model import require_arguments as require
from rl_testing.models import tiny_model
from transformers import AutoConfig

CPU = torch.device("cpu")


def empty(model, dtype=torch.float32):
    return build_empty(model.config, dtype, CPU, trust_remote_code=False)


@pytest.mark.parametrize("model_type", ["qwen2", "llama", "gpt2", "qwen3", "gemma", "smollm3"])
def test_only_the_weights_are_missing(model_type):
    model = tiny_model(model_type)
    built = empty(model)
    require(built)
    weights = dict(named_weights(model))
    assert list(dict(named_weights(built))) == list(weights)
    with torch.no_grad():
        for name, tensor in named_weights(built):
            tensor.copy_(weights[name])
    for (name, buffer), (_, expected) in zip(built.named_buffers(), model.named_buffers(), strict=True):
        torch.testing.assert_close(buffer, expected, rtol=0, atol=0, msg=name)
    ids = torch.tensor([[5, 3, 9, 4]])
    torch.testing.assert_close(built(ids).logits, model(ids).logits, rtol=0, atol=0)
    assert not built.training
    assert not any(parameter.requires_grad for parameter in built.parameters())


def test_tied_weights_are_one_tensor():
    built = empty(tiny_model("qwen2", tie_word_embeddings=True))
    names = dict(named_weights(built))
    assert names["lm_head.weight"] is names["model.embed_tokens.weight"]


def test_nothing_is_drawn_and_torchs_default_type_stays():
    before, model = torch.random.get_rng_state(), tiny_model("qwen2")
    built = empty(model, torch.bfloat16)
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.get_default_dtype() == torch.float32
    assert {tensor.dtype for _, tensor in named_weights(built)} == {torch.bfloat16}
    # Positions would be wrong far from the start in 16 bits.
    assert built.model.rotary_emb.inv_freq.dtype == torch.float32


@pytest.mark.parametrize(
    ("model_type", "changes", "max_model_len", "problem"),
    [
        ("mamba", {}, 64, "'linear_attention'"),
        ("gemma3_text", {"sliding_window": 32}, 64, "'sliding_attention' of 32 tokens, fewer than.*64"),
        ("mistral", {"sliding_window": 32}, 64, "'sliding_attention' of 32 tokens"),
        ("t5", {}, 64, "encoder"),
        (
            "llama",
            {
                "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
                "max_position_embeddings": 32,
            },
            64,
            "'dynamic' rotary",
        ),
    ],
)
def test_models_that_the_cache_cannot_hold_are_refused_by_name(model_type, changes, max_model_len, problem):
    config = AutoConfig.for_model(model_type, **changes)
    with pytest.raises(ConfigError, match=f"'{model_type}'.*({problem}).*rollout.name"):
        require_servable(config, max_model_len)


def test_a_window_as_long_as_the_longest_sequence_changes_nothing():
    require_servable(AutoConfig.for_model("gemma3_text", sliding_window=64), 64)
    require_servable(AutoConfig.for_model("mistral", sliding_window=64), 64)
    require_servable(AutoConfig.for_model("qwen2"), 32_000)


def test_a_model_without_position_ids_is_refused():
    with pytest.raises(ConfigError, match=r"'bloom'.*position_ids"):
        require(tiny_model("bloom"))


def test_the_cache_argument_is_one_that_the_model_has():
    assert cache_argument(tiny_model("qwen2")) in ("cache", "past_key_values")


def test_a_buffer_that_cannot_be_computed_is_named(monkeypatch):
    model = tiny_model("qwen2")
    kind = type(model)
    monkeypatch.setattr(kind, "initialize_weights", lambda self: None)
    with pytest.raises(ConfigError, match=r"'qwen2'.*inv_freq"):
        empty(model)
