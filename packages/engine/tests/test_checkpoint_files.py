import json

import pytest
import torch
from rl_core.errors import ConfigError
from rl_engine.checkpoint_files import read_tensors, require_same_names, tensor_names, weight_files
from safetensors.torch import save_file


def write_two_files(folder):
    save_file({"a": torch.ones(2)}, folder / "model-00001-of-00002.safetensors")
    save_file({"b": torch.zeros(3)}, folder / "model-00002-of-00002.safetensors")
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_several_files_by_their_index(tmp_path):
    write_two_files(tmp_path)
    assert [file.name for file in weight_files(tmp_path)] == [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    assert tensor_names(tmp_path) == {"a", "b"}
    assert read_tensors(tmp_path, ["b", "c"]).keys() == {"b"}


def test_one_old_file(tmp_path):
    torch.save({"a": torch.ones(2)}, tmp_path / "pytorch_model.bin")
    assert tensor_names(tmp_path) == {"a"}
    assert read_tensors(tmp_path, ["a"])["a"].tolist() == [1, 1]


def test_no_files_and_lost_files(tmp_path):
    with pytest.raises(ConfigError, match=r"lacks weights: model.safetensors or"):
        read_tensors(tmp_path, ["a"])
    write_two_files(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"lacks model-00002-of-00002.safetensors"):
        read_tensors(tmp_path, ["a"])


def test_names_in_memory_must_be_those_of_the_files(tmp_path):
    save_file({"model.x": torch.ones(1), "y": torch.ones(1), "extra": torch.ones(1)}, tmp_path / "model.safetensors")
    require_same_names(tmp_path, {"model.x": ["model.x"]}, "model", "qwen2")
    # Files of a bare backbone lack its prefix.
    require_same_names(tmp_path, {"model.x": ["model.x"], "model.y": ["model.y"]}, "model", "qwen2")
    # One tensor in memory may be several in the files, or be there as it is.
    require_same_names(tmp_path, {"model.fused": ["model.x", "model.y"], "extra": ["model.cut"]}, "model", "qwen3_moe")
    with pytest.raises(ConfigError, match=r"'qwen3_moe' keeps 1 of its weights .* model.experts.gate_up_proj"):
        require_same_names(tmp_path, {"model.experts.gate_up_proj": ["model.x", "model.gone"]}, "model", "qwen3_moe")
