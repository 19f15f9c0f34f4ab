import json

import pytest
import torch
from rl_core.errors import ConfigError
from rl_engine.lora.files import adapter_config, load_into, shortest_targets, write_adapter
from rl_engine.lora.settings import LoraSettings

NAME = "base_model.model.first.lora_A.weight"


@pytest.fixture
def folder(tmp_path):
    settings = LoraSettings(rank=2, alpha=3.0)
    config = adapter_config(settings, targets=("second", "first"), base_model_name_or_path="models/base")
    write_adapter(tmp_path, config, {NAME: torch.arange(6.0).view(2, 3)})
    return tmp_path


def fill(folder, tensors=None, **settings):
    tensors = tensors if tensors is not None else {NAME: torch.zeros(2, 3)}
    load_into(tensors, LoraSettings(**({"rank": 2, "alpha": 3.0, "start_from": str(folder)} | settings)))
    return tensors


def rewrite(folder, **fields):
    file = folder / "adapter_config.json"
    kept = {name: value for name, value in (json.loads(file.read_text()) | fields).items() if value is not ...}
    file.write_text(json.dumps(kept))


def test_what_was_written_is_read(folder):
    assert torch.equal(fill(folder)[NAME], torch.arange(6.0).view(2, 3))


def test_the_configuration_keeps_alpha_and_has_one_order(folder):
    fields = json.loads((folder / "adapter_config.json").read_text())
    assert (fields["r"], fields["lora_alpha"], fields["peft_type"]) == (2, 3, "LORA")
    assert fields["target_modules"] == ["first", "second"]
    assert fields["base_model_name_or_path"] == "models/base"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lora_alpha": 0}, "lora_alpha=0"),
        ({"lora_alpha": ...}, "lora_alpha=None"),
        ({"r": ...}, "r=None"),
        ({"use_rslora": True}, "use_rslora"),
        ({"alpha_pattern": {"first": 4}}, "alpha_pattern"),
        ({"peft_type": "LOHA"}, "LOHA"),
        ({"r": 4}, r"Set model.lora_rank=4"),
        ({"lora_alpha": 6}, r"model.lora_alpha=6"),
    ],
)
def test_an_adapter_that_would_compute_something_else_is_refused(folder, fields, message):
    rewrite(folder, **fields)
    with pytest.raises(ConfigError, match=message):
        fill(folder)


@pytest.mark.parametrize(
    "tensors",
    [
        {"base_model.model.base_layer.first.lora_A.weight": torch.zeros(2, 3)},
        {NAME: torch.zeros(2, 3), "base_model.model.second.lora_A.weight": torch.zeros(2, 3)},
        {NAME: torch.zeros(2, 4)},
    ],
)
def test_no_matrix_is_skipped_in_silence(folder, tensors):
    with pytest.raises(ConfigError, match="does not fit this run's"):
        fill(folder, tensors)


def test_a_folder_without_adapter(tmp_path):
    with pytest.raises(ConfigError, match=r"holds no readable adapter_config\.json"):
        fill(tmp_path)


def test_targets_are_short_where_that_is_exact():
    names = ["layers.0.q", "layers.0.k", "layers.1.q", "layers.1.k"]
    assert shortest_targets(["layers.0.q", "layers.1.q"], names) == ("q",)
    assert shortest_targets(["layers.0.q"], names) == ("layers.0.q",)
