from types import SimpleNamespace

import pytest
from rl_core.config.model import LoraConfig, ModelConfig
from rl_core.errors import ConfigError
from rl_engine.lora.settings import LoraSettings, lora_settings


def test_rank_zero_means_none():
    assert lora_settings(ModelConfig()) is None
    assert lora_settings(SimpleNamespace(path="model")) is None


def test_every_key_is_read():
    section = ModelConfig(
        lora_rank=8,
        lora_alpha=32,
        target_modules=["q_proj", "v_proj"],
        exclude_modules=".*layers.0.*",
        lora_adapter_path="adapter",
        lora=LoraConfig(dropout=0.1, export="adapter"),
    )
    found = lora_settings(section)
    assert found == LoraSettings(
        rank=8,
        alpha=32.0,
        target_modules=("q_proj", "v_proj"),
        exclude_modules=".*layers.0.*",
        start_from="adapter",
        dropout=0.1,
        export="adapter",
    )
    assert found.scaling == 4.0


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("all-linear", "all-linear"),
        (None, "all-linear"),
        ("q_proj", ("q_proj",)),
        ("layers.0.q_proj", ("layers.0.q_proj",)),
        (".*q_proj", ".*q_proj"),
        (["q_proj"], ("q_proj",)),
    ],
)
def test_a_plain_name_is_a_name_and_other_text_a_pattern(given, meant):
    assert lora_settings(SimpleNamespace(lora_rank=1, lora_alpha=1, target_modules=given)).target_modules == meant


@pytest.mark.parametrize("alpha", [None, 0, -1, float("nan")])
def test_without_alpha_an_adapter_would_add_nothing(alpha):
    with pytest.raises(ConfigError, match=f"lora_alpha is {alpha}.*Set it above 0"):
        lora_settings(SimpleNamespace(lora_rank=8, lora_alpha=alpha))


def test_other_kinds_are_refused():
    with pytest.raises(ConfigError, match=r"'dora'.*plain 'lora'"):
        lora_settings(ModelConfig(lora_rank=8, lora=LoraConfig(type="dora")))


def test_an_adapter_to_start_from_needs_a_rank():
    with pytest.raises(ConfigError, match=r"lora_adapter_path is adapter, but model\.lora_rank is 0"):
        lora_settings(ModelConfig(lora_adapter_path="adapter"))
