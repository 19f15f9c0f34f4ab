import json

import pytest
import torch
from rl_core.contracts.weights import WeightBucket, WeightManifest, WeightSlice, WeightSpec
from rl_engine.export import HFWriter, companions
from rl_testing.models import save_tiny_model, tiny_model
from safetensors.torch import load_file
from transformers import AutoTokenizer

SPECS = tuple(WeightSpec(name=name, shape=(2,), dtype="float32") for name in "abc")
TENSORS = {name: torch.full((2,), number) for number, name in enumerate("abc", start=1)}


def bucket(*names):
    return WeightBucket(tuple(WeightSlice(name, TENSORS[name].float()) for name in names))


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("source"), hidden_size=32)


def config():
    return tiny_model(hidden_size=32).config


def test_one_file(tmp_path, source):
    writer = HFWriter(tmp_path, WeightManifest(entries=SPECS))
    writer.take(bucket("a", "b"))
    writer.take(bucket("c"))
    writer.finish(config(), source)
    found = load_file(tmp_path / "model.safetensors")
    assert {name: tensor.tolist() for name, tensor in found.items()} == {"a": [1, 1], "b": [2, 2], "c": [3, 3]}
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "qwen2"


def test_several_files_are_written_as_they_fill_and_indexed(tmp_path, source):
    writer = HFWriter(tmp_path, WeightManifest(entries=SPECS), file_bytes=16)
    writer.take(bucket("a"))
    assert list(tmp_path.iterdir()) == []
    writer.take(bucket("b"))
    assert [file.name for file in tmp_path.iterdir()] == ["model-00001-of-00002.safetensors"]
    writer.take(bucket("c"))
    writer.finish(config(), source)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["weight_map"] == {
        "a": "model-00001-of-00002.safetensors",
        "b": "model-00001-of-00002.safetensors",
        "c": "model-00002-of-00002.safetensors",
    }
    assert index["metadata"]["total_size"] == 24
    assert load_file(tmp_path / "model-00002-of-00002.safetensors")["c"].tolist() == [3, 3]


def test_buckets_are_copied(tmp_path, source):
    writer = HFWriter(tmp_path, WeightManifest(entries=SPECS))
    first = bucket("a")
    writer.take(first)
    first.slices[0].tensor.fill_(-1)
    writer.take(bucket("b", "c"))
    assert load_file(tmp_path / "model.safetensors")["a"].tolist() == [1, 1]


def test_tokenizer_and_generation_settings_come_along(tmp_path, source):
    writer = HFWriter(tmp_path, WeightManifest(entries=()))
    writer.finish(config(), source)
    assert json.loads((tmp_path / "generation_config.json").read_text())["eos_token_id"] == [259, 257]
    text = AutoTokenizer.from_pretrained(tmp_path).apply_chat_template(
        [{"role": "user", "content": "x"}], tokenize=False
    )
    assert text == "<|im_start|>user\nx<|im_end|>\n"


def test_a_template_of_the_run_replaces_the_sources(tmp_path, source):
    HFWriter(tmp_path, WeightManifest(entries=())).finish(config(), source, "{{ messages[0].content }}")
    assert (
        AutoTokenizer.from_pretrained(tmp_path).apply_chat_template([{"role": "user", "content": "x"}], tokenize=False)
        == "x"
    )


def test_weights_and_their_index_do_not_come_along(tmp_path):
    for name in ("model.safetensors", "pytorch_model.bin", "model.safetensors.index.json", "config.json", "vocab.json"):
        (tmp_path / name).write_text("{}")
    assert [file.name for file in companions(tmp_path)] == ["vocab.json"]


def test_a_stream_that_ends_early_is_no_export(tmp_path, source):
    writer = HFWriter(tmp_path, WeightManifest(entries=SPECS))
    writer.take(bucket("a"))
    with pytest.raises(RuntimeError, match=r"2 tensors of its manifest never came: \['b', 'c'\]"):
        writer.finish(config(), source)
