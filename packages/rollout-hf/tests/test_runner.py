from __future__ import annotations

import pytest
import torch
from rl_core.errors import ConfigError
from rl_rollout_hf.cache import LayerShape
from rl_rollout_hf.runner import Batch, Runner, fill_batches
from rl_testing.models import tiny_model

CPU = torch.device("cpu")


def test_equal_prompts_are_read_once():
    assert fill_batches([(1, 2), (3, 4), (1, 2), (1, 2)], first_row=5) == [
        Batch(prompts=((1, 2), (3, 4)), rows=(5, 7, 8, 6), sources=(0, 0, 0, 1))
    ]


def test_a_pass_holds_prompts_of_about_one_length():
    lengths = [3, 20, 10, 11, 100, 51, 1, 2]
    contexts = [(length,) * length for length in lengths]
    batches = fill_batches(contexts, first_row=0)
    assert [[len(prompt) for prompt in batch.prompts] for batch in batches] == [[100, 51], [20, 11], [10], [3, 2], [1]]
    for batch in batches:
        assert [batch.prompts[source] for source in batch.sources] == [contexts[row] for row in batch.rows]


def test_prompts_of_one_token_need_no_pass():
    assert fill_batches([(), ()], first_row=0) == []


@pytest.mark.parametrize(
    ("model_type", "shape"),
    [("qwen2", LayerShape(2, 16, 16)), ("gpt2", LayerShape(4, 16, 16)), ("qwen3", LayerShape(2, 128, 128))],
)
def test_layers_are_asked_what_they_keep(model_type, shape):
    runner = Runner(tiny_model(model_type, num_layers=3), CPU)
    assert runner.layer_shapes() == [shape] * 3


@pytest.mark.parametrize("model_type", ["qwen2", "llama", "gpt2", "qwen3", "gemma", "phi3", "gpt_neox", "mixtral"])
def test_families_keep_their_past_in_the_cache_alone(model_type):
    Runner(tiny_model(model_type), CPU).require_faithful_cache()


def test_eager_attention_gets_its_own_mask():
    model = tiny_model("qwen2")
    model.config._attn_implementation = "eager"
    Runner(model, CPU).require_faithful_cache()


def test_a_model_that_knows_more_than_its_cache_is_refused():
    model = tiny_model("qwen2")
    calls = []

    def drift(module, arguments, output):
        calls.append(None)
        return output + 0.1 * len(calls)

    model.model.embed_tokens.register_forward_hook(drift)
    with pytest.raises(ConfigError, match=r"'qwen2'.*differ"):
        Runner(model, CPU).require_faithful_cache()


def test_a_model_whose_layers_share_a_cache_is_refused():
    model = tiny_model("qwen2")
    model.model.layers[1].self_attn.layer_idx = 0
    with pytest.raises(ConfigError, match=r"of its 2 layers, \[0\] keep"):
        Runner(model, CPU).layer_shapes()
