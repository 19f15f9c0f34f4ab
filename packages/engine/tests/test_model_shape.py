import json

import pytest
import torch
from rl_core.errors import ConfigError
from rl_engine.model_shape import count_parameters, read_shape, shape_of
from transformers import AutoConfig, AutoModelForCausalLM

COMMON = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 101,
}
KINDS = {
    "llama": {},
    "llama-tied": {"tie_word_embeddings": True},
    "qwen2": {},
    "qwen3": {"head_dim": 8},
    "mistral": {},
    "smollm3": {"pad_token_id": 0},
    "qwen3_moe": {"head_dim": 8, "moe_intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2},
}


class Section:
    def __init__(self, path, **more):
        self.path = str(path)
        self.__dict__.update(more)


def build(kind, **more):
    config = AutoConfig.for_model(kind.partition("-")[0], **{**COMMON, **KINDS[kind], **more})
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_the_closed_form_counts_what_the_model_has(kind, tmp_path):
    model = build(kind)
    numbers = sum(parameter.numel() for parameter in model.parameters())
    model.config.save_pretrained(tmp_path)
    assert read_shape(Section(tmp_path)).parameters == numbers


@pytest.mark.parametrize("kind", ["llama", "llama-tied"])
def test_files_are_counted_by_their_headers(kind, tmp_path):
    model = build(kind)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    numbers = sum(parameter.numel() for parameter in model.parameters())
    assert count_parameters(tmp_path, is_tied=kind == "llama-tied") == numbers


def test_sizes_of_a_mixture(tmp_path):
    build("qwen3_moe").config.save_pretrained(tmp_path)
    shape = read_shape(Section(tmp_path))
    assert (shape.inner, shape.experts_per_token, shape.has_head_norms) == (2 * 16, 2, True)


def test_overrides_and_windows_count():
    shape = shape_of({**COMMON, "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"] * 2})
    assert (shape.window, shape.windowed_layers) == (16, 2)
    assert shape_of({**COMMON, "sliding_window": 16}).window is None


def test_a_part_of_a_model_with_images_is_its_language_model():
    assert shape_of({"model_type": "x", "text_config": {**COMMON, "head_dim": 16}}).head_dim == 16


def test_an_override_changes_the_shape(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **COMMON}))
    assert read_shape(Section(tmp_path, override_config={"num_hidden_layers": 1})).layers == 1


@pytest.mark.parametrize(
    ("text", "match"),
    [("{", "cannot be read"), ('{"model_type": "t5"}', "does not say how large"), (None, "cannot be read")],
)
def test_what_is_no_decoder_is_refused(text, match, tmp_path):
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=match):
        read_shape(Section(tmp_path))


@pytest.mark.parametrize("path", [None, "/no/such/folder", "nobody/has-this-model"])
def test_a_model_that_is_not_here_is_not_fetched(path):
    section = Section("")
    section.path = path
    with pytest.raises(ConfigError, match=r"no model path|there is no folder"):
        read_shape(section)
