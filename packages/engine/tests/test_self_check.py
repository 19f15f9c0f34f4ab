import pytest
import torch
from rl_core.errors import ConfigError
from rl_engine.self_check import require_separable_type, require_separate_sequences
from rl_testing.models import tiny_model


def hidden_states(model):
    def run(inputs):
        with torch.no_grad():
            return model.base_model(**inputs.arguments()).last_hidden_state

    return run


def check(model):
    require_separate_sequences(hidden_states(model), model.config, "cpu")


@pytest.mark.parametrize("model_type", ["qwen2", "llama", "gpt2", "mistral", "gemma3_text", "qwen3_moe", "lfm2"])
def test_models_that_keep_sequences_apart(model_type):
    model = tiny_model(model_type, hidden_size=32, vocab_size=64)
    require_separable_type(model.config)
    check(model)


@pytest.mark.parametrize("model_type", ["opt", "bloom", "mpt", "biogpt"])
def test_models_that_do_not_are_refused_by_name(model_type):
    model = tiny_model(model_type, hidden_size=32, vocab_size=64)
    with pytest.raises(ConfigError, match=rf"'{model_type}' cannot keep .*Set model.use_remove_padding=False"):
        check(model)


@pytest.mark.parametrize("model_type", ["mamba", "rwkv", "qwen3_next"])
def test_recurrent_models_are_refused_before_their_weights_are_loaded(model_type):
    config = tiny_model(model_type, hidden_size=32, vocab_size=64).config
    with pytest.raises(ConfigError, match=rf"'{model_type}' .* carries a state .*Set model.use_remove_padding=False"):
        require_separable_type(config)


def test_half_precision_is_not_taken_for_a_leak():
    check(tiny_model("qwen3_moe", hidden_size=32, vocab_size=64, dtype=torch.bfloat16))


def test_a_small_vocabulary_will_do():
    check(tiny_model(hidden_size=32, vocab_size=3))


def test_a_model_of_nothing_but_nan_is_refused():
    model = tiny_model(hidden_size=32, vocab_size=64)
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(ConfigError):
        check(model)
