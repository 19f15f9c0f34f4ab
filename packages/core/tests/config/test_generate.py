from __future__ import annotations

import pytest
import yaml
from omegaconf import OmegaConf
from rl_core.config.generate import distributions_in, generate_yaml, generated_file, key_help
from rl_core.config.layout import LAYOUTS
from rl_core.config.root import PPOTrainerConfig
from rl_core.config.schema import core_schema
from rl_core.errors import ConfigError
from rl_core.plugins import Registry, Selection


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.command)
def test_the_file_says_what_the_dataclasses_say(layout):
    text = generated_file(layout).read_text(encoding="utf-8")
    registry = Registry(Selection())
    registry.load_entry_points()
    anew = f"rl config generate --command {layout.command} --write"
    assert generate_yaml(registry, distributions_in(text), layout) == text, anew


def test_the_values_are_the_defaults(core_only):
    values = yaml.safe_load(generate_yaml(core_only, []))
    expected = OmegaConf.to_container(OmegaConf.structured(PPOTrainerConfig), resolve=False)
    assert OmegaConf.to_container(OmegaConf.merge(OmegaConf.structured(PPOTrainerConfig), values)) == expected
    assert list(values) == list(expected)


def test_help_stands_above_its_key(core_only):
    lines = generate_yaml(core_only, []).splitlines()
    at = lines.index("  train_batch_size: 1024")
    assert lines[at - 1] == "  # Prompts sampled per step. Each is answered ``rollout.n`` times."
    at = lines.index("  truncation: error")
    comment = " ".join(line.strip(" #") for line in lines[at - 3 : at])
    assert comment.endswith("One of: error, left, right, middle.")
    at = lines.index("  filter_prompts: true")
    assert "Has no effect" in " ".join(lines[at - 2 : at])


def test_plugins_of_the_named_distributions_are_shown(registry):
    text = generate_yaml(registry, ["rl-engines"])
    assert distributions_in(text) == ["rl-core", "rl-engines"]
    values = yaml.safe_load(text)
    assert values["critic"]["fsdp_config"] == {"param_offload": False, "optimizer_offload": False, "fsdp_size": -1}
    assert values["actor_rollout_ref"]["rollout"]["echo"] == {"text": "hello"}
    assert "# Of backend 'fsdp': Shards." in text
    assert "fsdp_config" not in generate_yaml(registry, [])


def test_absent_distribution_is_named(core_only):
    with pytest.raises(ConfigError, match="rl-other"):
        generate_yaml(core_only, ["rl-other"])


def test_help_for_one_key(core_only):
    text = key_help(core_schema(), "data.truncation", core_only)
    assert text.startswith("data.truncation: str = error\n")
    assert "One of: error, left, right, middle" in text
    assert "Installed: " in key_help(core_schema(), "algorithm.adv_estimator", core_only)
    assert "Has no effect" in key_help(core_schema(), "trainer.use_v1", core_only)


def test_help_for_a_section_and_for_free_keys(core_only):
    assert key_help(core_schema(), "algorithm.kl_ctrl", core_only).count("algorithm.kl_ctrl.") == 4
    assert "takes any keys" in key_help(core_schema(), "data.apply_chat_template_kwargs.x", core_only)


def test_help_for_nothing_names_the_closest(core_only):
    with pytest.raises(ConfigError, match=r"Closest: data\.truncation"):
        key_help(core_schema(), "data.truncatoin", core_only)
