import tempfile
from types import SimpleNamespace

import pytest
import torch
from rl_core.errors import ConfigError
from rl_engine.lora.adapter import add_adapter
from rl_engine.lora.settings import LoraSettings
from rl_engine.token_model import PolicyModel
from rl_engine.value_head import ValueModel, load_value_model
from rl_testing.models import save_tiny_model, tiny_model

SIZES = {"vocab_size": 33, "hidden_size": 16, "num_heads": 2, "num_key_value_heads": 1}
LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

_folder = tempfile.TemporaryDirectory(prefix="tiny-model-")
PATH = save_tiny_model(_folder.name, with_tokenizer=False, **SIZES)


def policy(model_type="qwen2", **fields):
    return PolicyModel(tiny_model(model_type, **(SIZES | fields)))


def attach(module, *, dtype=torch.float32, seed=1, rank=2, alpha=4.0, **settings):
    adapter = add_adapter(module, LoraSettings(rank=rank, alpha=alpha, **settings), dtype=dtype, seed=seed)
    module.adapter = adapter
    return adapter


def test_all_linear_layers_but_the_output_layer():
    module = policy()
    before = {name: tensor.clone() for name, tensor in module.named_weights()}
    adapter = attach(module)
    assert len(adapter) == 2 * len(LINEAR)
    assert {name.rpartition(".")[2] for name in adapter.layer_names} == set(LINEAR)
    after = dict(module.named_weights())
    assert list(after) == list(before)
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


def test_names_are_those_of_peft_files():
    adapter = attach(policy(), target_modules=("layers.1.self_attn.q_proj",))
    assert {name: tuple(tensor.shape) for name, tensor in adapter.named_tensors()} == {
        "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight": (2, 16),
        "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight": (16, 2),
    }


def test_only_adapters_are_trained_and_in_their_own_format():
    module = policy().to(torch.bfloat16)
    adapter = attach(module)
    trained = {id(tensor) for _, tensor in adapter.named_tensors()}
    for parameter in module.parameters():
        assert parameter.requires_grad == (id(parameter) in trained)
        assert parameter.dtype == (torch.float32 if id(parameter) in trained else torch.bfloat16)


def test_every_rank_draws_the_same_whatever_was_drawn_before():
    drawn = []
    for noise in (0, 5):
        torch.rand(noise)
        state = torch.get_rng_state()
        drawn.append(dict(attach(policy(), seed=3).named_tensors()))
        assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(drawn[0][name], tensor) for name, tensor in drawn[1].items())
    other = dict(attach(policy(), seed=4).named_tensors())
    assert any(not torch.equal(other[name], tensor) for name, tensor in drawn[0].items())


def test_off_and_on_leave_gradients_as_they_are():
    module = policy()
    adapter = attach(module)
    with torch.no_grad():
        for name, tensor in adapter.named_tensors():
            if ".lora_B." in name:
                tensor.fill_(0.1)
    ids = torch.arange(6)[None]
    plain = policy()
    with torch.no_grad():
        moved = module.causal_lm(ids).logits
        with adapter.off():
            assert all(tensor.requires_grad for _, tensor in adapter.named_tensors())
            assert torch.equal(module.causal_lm(ids).logits, plain.causal_lm(ids).logits)
        assert torch.equal(module.causal_lm(ids).logits, moved)
    assert not torch.allclose(moved, plain.causal_lm(ids).logits)


def test_it_is_on_again_after_an_error():
    adapter = attach(policy())
    with pytest.raises(KeyError), adapter.off():
        raise KeyError
    assert not any(layer.disable_adapters for layer in adapter._layers.values())


def test_excluded_layers_get_none():
    adapter = attach(policy(), exclude_modules=("q_proj", "o_proj"))
    assert {name.rpartition(".")[2] for name in adapter.layer_names} == set(LINEAR) - {"q_proj", "o_proj"}


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (("no_such_layer",), "gets no adapters.*no_such_layer"),
        (("embed_tokens",), "chooses model.embed_tokens, a Embedding"),
        (("lm_head",), "chooses lm_head"),
        (("input_layernorm",), "gets no adapters.*input_layernorm"),
    ],
)
def test_layers_that_cannot_have_one_are_refused(chosen, message):
    with pytest.raises(ConfigError, match=message):
        attach(policy(), target_modules=chosen)


def test_transposed_layers_are_known():
    adapter = attach(policy("gpt2"), target_modules=("c_attn",))
    assert adapter.has_transposed
    layer = adapter.layer_of("transformer.h.0.attn.c_attn.weight")
    assert adapter.is_transposed(layer)
    assert adapter.layer_of("transformer.h.0.attn.c_attn.bias") is None


def test_a_critic_also_trains_its_score_head():
    module: ValueModel = load_value_model(SimpleNamespace(path=str(PATH)), torch.float32)
    adapter = attach(module)
    assert adapter.whole_names == ("score",)
    assert module.score.weight.requires_grad
    names = [name for name, _ in adapter.named_tensors()]
    assert names[-1] == "base_model.model.score.weight"
    assert names[0] == "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    assert "score.weight" in dict(module.named_weights())
