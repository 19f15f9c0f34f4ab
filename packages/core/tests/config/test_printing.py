from __future__ import annotations

import pytest
import yaml
from omegaconf import OmegaConf
from rl_core.config import cfg_text, config_to_yaml, parse_cli, redact
from rl_core.config.secrets import REDACTED
from rl_core.errors import ConfigError

SECRET = "+ray_kwargs.ray_init.runtime_env.env_vars.AGENTENV_TOKEN=t0ken"


def test_no_form_of_a_configuration_shows_a_secret(composed):
    config = composed(SECRET)
    texts = [
        config_to_yaml(config),
        config_to_yaml(config, resolve=False),
        config_to_yaml(config.raw),
        config_to_yaml(config.tree),
        str(redact(config)),
        str(config.overrides),
    ]
    for text in texts:
        assert "t0ken" not in text
        assert "AGENTENV_TOKEN" in text
    assert config.tree.ray_kwargs.ray_init.runtime_env["env_vars"]["AGENTENV_TOKEN"] == "t0ken"


def test_yaml_holds_plugin_sections_and_derived_values(composed):
    config = composed("critic.fsdp_config.fsdp_size=2", "actor_rollout_ref.actor.clip_ratio=0.3")
    for source in (config, config.tree):
        shown = yaml.safe_load(config_to_yaml(source))
        assert shown["critic"]["fsdp_config"]["fsdp_size"] == 2
        assert shown["actor_rollout_ref"]["actor"]["clip_ratio_low"] == 0.3
    unresolved = yaml.safe_load(config_to_yaml(config, resolve=False))
    assert unresolved["actor_rollout_ref"]["actor"]["clip_ratio_low"] is None
    assert (
        unresolved["trainer"]["default_local_dir"] == "checkpoints/${trainer.project_name}/${trainer.experiment_name}"
    )


def test_one_section_or_one_value(composed):
    config = composed("trainer.nnodes=3")
    assert yaml.safe_load(config_to_yaml(config, package="trainer"))["nnodes"] == 3
    assert config_to_yaml(config, package="trainer.nnodes") == "3\n"
    with pytest.raises(ConfigError, match=r"no section 'trainer\.nodes'"):
        config_to_yaml(config, package="trainer.nodes")


def test_the_configuration_of_a_command_line(registry):
    request = parse_cli(
        ["actor_rollout_ref.rollout.name=echo", "trainer.nnodes=2", "--cfg", "job", "-p", "trainer.nnodes"]
    )
    assert cfg_text(request, registry) == "2\n"


def test_plain_containers_are_redacted_too():
    assert redact({"a": [{"password": "x"}]}) == {"a": [{"password": REDACTED}]}
    assert redact(OmegaConf.create({"password": "x", "b": 1})) == {"password": REDACTED, "b": 1}
