from __future__ import annotations

import pickle
import subprocess
import sys

import pytest
from omegaconf import OmegaConf
from rl_core import builtins
from rl_core.config import PPOTrainerConfig, compose, compose_leniently, compose_request, parse_cli, to_dataclass
from rl_core.errors import ConfigError, PluginNotFoundError
from rl_core.plugins import BackendRecord, RolloutRecord, Selection

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"


def test_defaults_are_typed_and_frozen(composed):
    config = composed()
    tree = to_dataclass(config)
    assert isinstance(tree, PPOTrainerConfig)
    assert tree.data.train_batch_size == 1024
    assert tree.actor_rollout_ref.rollout.tensor_model_parallel_size == 1
    assert tree.trainer.logger == ["console", "jsonl"]
    assert tree.trainer.n_gpus_per_node == 1
    assert tree.trainer.seed == 1
    with pytest.raises(ConfigError, match="read-only"):
        tree.actor_rollout_ref.actor.optim.lr = 1.0


def test_values_are_converted_to_their_type(composed):
    tree = composed(f"{ACTOR}.optim.lr=1e-6", f"{ROLLOUT}.n=8", "trainer.logger=console", "data.train_files=[a,b]").tree
    assert tree.actor_rollout_ref.actor.optim.lr == 1e-6
    assert tree.actor_rollout_ref.rollout.n == 8
    assert tree.trainer.logger == ["console"]
    assert tree.data.train_files == ["a", "b"]


def test_every_ill_typed_value_is_reported_at_once(problems):
    text = problems("data.train_batch_size=many", "data.shuffle=perhaps", f"{ACTOR}.optim.betas=[0.9,x]")
    assert "data.train_batch_size takes a whole number; found 'many'." in text
    assert "data.shuffle takes true or false; found 'perhaps'." in text
    assert f"{ACTOR}.optim.betas takes a list of numbers" in text


def test_values_outside_their_limits_are_refused(problems):
    text = problems(
        "trainer.nnodes=0",
        f"{ROLLOUT}.gpu_memory_utilization=1.5",
        "data.truncation=top",
        f"{ACTOR}.clip_ratio_c=1.0",
    )
    assert "trainer.nnodes must be at least 1; found 0." in text
    assert f"{ROLLOUT}.gpu_memory_utilization must be at most 1; found 1.5." in text
    assert "data.truncation takes one of error, left, right, middle; found 'top'." in text
    assert f"{ACTOR}.clip_ratio_c must be more than 1; found 1.0." in text


def test_a_section_is_no_value(problems):
    assert "critic.optim is a section; it cannot be set to 3." in problems("critic.optim=3")


def test_rollout_has_no_default_and_the_error_lists_the_installed_ones(registry):
    with pytest.raises(ConfigError, match=r"rollout\.name has no default.*\n.*Installed: echo, sglang, vllm\."):
        compose([], registry=registry)


def test_missing_engine_says_what_to_install(core_only):
    composition = compose_leniently(["actor_rollout_ref.rollout.name=vllm"], registry=core_only)
    text = "\n".join(map(str, composition.errors))
    assert "pip install rl-rollout-vllm" in text
    assert text.count("pip install rl-backend-fsdp") == 1, "roles that follow the actor do not repeat its error"


def test_a_single_plugin_error_keeps_its_class(registry):
    with pytest.raises(PluginNotFoundError, match="hfx"):
        compose([f"{ROLLOUT}.name=hfx"], registry=registry)


def test_plugin_section_is_mounted_as_its_own_dataclass(composed):
    tree = composed(f"{ACTOR}.fsdp_config.param_offload=True", "critic.fsdp_config.fsdp_size=2").tree
    section = tree.actor_rollout_ref.actor.fsdp_config
    assert type(section).__name__ == "ShardConfig"
    assert section.param_offload is True
    assert section.optimizer_offload is False
    assert tree.critic.fsdp_config.fsdp_size == 2
    assert tree.actor_rollout_ref.ref.fsdp_config.fsdp_size == -1
    assert tree.reward_model.fsdp_config.fsdp_size == -1


def test_section_without_config_key_has_the_plugins_name(composed):
    tree = composed(f"{ROLLOUT}.name=echo", f"{ROLLOUT}.echo.text=hi").tree
    assert tree.actor_rollout_ref.rollout.echo.text == "hi"


def test_each_role_gets_the_section_of_its_own_backend(composed):
    config = composed(f"{ACTOR}.strategy=megatron", "critic.strategy=fsdp")
    assert "fsdp_config" not in vars(config.tree.actor_rollout_ref.actor)
    assert "megatron" in vars(config.tree.actor_rollout_ref.actor)
    assert "megatron" in vars(config.tree.actor_rollout_ref.ref), "the reference follows the actor"
    assert "fsdp_config" in vars(config.tree.critic)
    assert "megatron" not in vars(config.tree.critic)


def test_values_of_a_plugin_section_are_typed_too(problems):
    assert f"{ACTOR}.fsdp_config.param_offload takes true or false; found 'x'." in problems(
        f"{ACTOR}.fsdp_config.param_offload=x"
    )


def test_a_plugins_unusable_dataclass_is_named(registry):
    core = type(registry)(Selection())
    core.register_distribution("rl-core", "1.0", builtins)
    target = "rl_config_fakes:BadConfig"
    core.register_distribution(
        "rl-bad",
        "1.0",
        [
            BackendRecord(name="bad", target="m:t", summary="s", config=target, mount=("actor",)),
            RolloutRecord(name="r", target="m:t", summary="s"),
        ],
    )
    composition = compose_leniently([f"{ACTOR}.strategy=bad", f"{ROLLOUT}.name=r"], registry=core)
    (error,) = composition.errors
    assert f"{target} of backend 'bad' is unusable" in str(error)


def test_alias_of_a_plugin_becomes_its_name_with_one_notice(composed):
    config = composed(f"{ACTOR}.strategy=fsdp2")
    assert config.tree.actor_rollout_ref.actor.strategy == "fsdp"
    assert config.notices == (f"{ACTOR}.strategy=fsdp2 is another name of backend 'fsdp'.",)


def test_interpolations_are_filled_in(composed, monkeypatch):
    monkeypatch.setenv("RL_TEST_HOME", "/data")
    monkeypatch.setenv("RL_TEST_BATCH", "64")
    config = composed(
        "trainer.rollout_data_dir=${oc.env:RL_TEST_HOME}/rollouts",
        "data.train_batch_size=${oc.env:RL_TEST_BATCH}",
        "trainer.project_name=p",
        "trainer.experiment_name=e",
        f"{ACTOR}.ppo_mini_batch_size=64",
    )
    assert config.tree.trainer.rollout_data_dir == "/data/rollouts"
    assert config.tree.data.train_batch_size == 64
    assert config.tree.trainer.default_local_dir == "checkpoints/p/e"


def test_an_interpolation_that_leads_nowhere_names_its_key(problems, monkeypatch):
    monkeypatch.delenv("RL_TEST_ABSENT", raising=False)
    text = problems("trainer.rollout_data_dir=${oc.env:RL_TEST_ABSENT}")
    assert "trainer.rollout_data_dir holds an interpolation that cannot be filled in" in text
    assert "RL_TEST_ABSENT" in text


def test_plugin_name_may_be_an_interpolation(composed):
    config = composed(f"{ACTOR}.strategy=megatron", f"critic.strategy=${{{ACTOR}.strategy}}")
    assert config.tree.critic.strategy == "megatron"
    assert "megatron" in vars(config.tree.critic)


def test_free_form_sections_take_anything(composed):
    tree = composed(
        "+data.apply_chat_template_kwargs.enable_thinking=False",
        f"+{ROLLOUT}.engine_kwargs.vllm.swap_space=4",
        f"{ROLLOUT}.engine_kwargs.sglang.attention_backend=fa3",
        "+custom_reward_function.reward_kwargs.weight=0.5",
        "+actor_rollout_ref.model.override_config.attention_dropout=0.0",
        "+ray_kwargs.ray_init.runtime_env.env_vars.TOKEN_NAME=AGENTENV_TOKEN",
        "+reward_model.reward_kwargs.overlong_buffer_cfg.len=512",
    ).tree
    assert tree.data.apply_chat_template_kwargs == {"enable_thinking": False}
    assert tree.actor_rollout_ref.rollout.engine_kwargs == {
        "vllm": {"swap_space": 4},
        "sglang": {"attention_backend": "fa3"},
    }
    assert tree.custom_reward_function.reward_kwargs == {"weight": 0.5}
    assert tree.reward_model.reward_kwargs == {"overlong_buffer_cfg": {"len": 512}}


def test_plus_is_harmless_on_known_keys(composed):
    assert composed("+algorithm.gdpo_reward_keys=[a,b]").tree.algorithm.gdpo_reward_keys == ["a", "b"]


def test_recipe_lies_below_what_is_given(composed):
    tree = composed("recipe=higher", f"{ROLLOUT}.n=4").tree
    assert tree.actor_rollout_ref.actor.clip_ratio_high == 0.28
    assert tree.actor_rollout_ref.rollout.n == 4


def test_a_recipe_that_is_absent_or_broken_is_an_error(problems):
    assert "recipe: recipe 'hihger' is not known" in problems("recipe=hihger")
    assert "has no 'absent'" in problems("recipe=broken")


def test_given_keys_are_known(composed):
    config = composed("critic.fsdp.param_offload=True", "data.train_batch_size=1024")
    assert {"critic.fsdp_config.param_offload", "data.train_batch_size", f"{ROLLOUT}.name"} == config.given


def test_the_tree_survives_pickling(composed):
    config = composed("+data.apply_chat_template_kwargs.a=1")
    copy = pickle.loads(pickle.dumps(config))
    assert copy.tree == config.tree
    assert copy.tree.actor_rollout_ref.actor.fsdp_config == config.tree.actor_rollout_ref.actor.fsdp_config
    assert OmegaConf.to_container(copy.raw) == OmegaConf.to_container(config.raw)
    with pytest.raises(ConfigError, match="read-only"):
        copy.tree.data.seed = 3


def test_raw_and_tree_hold_the_same_values(composed):
    config = composed(f"{ACTOR}.clip_ratio=0.3")
    assert config.raw.actor_rollout_ref.actor.clip_ratio_low == 0.3
    assert config.tree.actor_rollout_ref.actor.clip_ratio_low == 0.3
    assert config.unresolved.actor_rollout_ref.actor.clip_ratio_low is None


def test_a_parsed_command_line_composes(registry):
    request = parse_cli([f"{ROLLOUT}.name=echo", "trainer.nnodes=2"])
    assert compose_request(request, registry).tree.trainer.nnodes == 2


def test_two_compositions_do_not_share_values(composed):
    first = composed("+data.apply_chat_template_kwargs.a=1")
    second = composed()
    assert second.tree.data.apply_chat_template_kwargs == {}
    assert first.tree.data.apply_chat_template_kwargs == {"a": 1}


def test_importing_config_loads_nothing_heavy():
    code = (
        "import sys, rl_core.config, rl_core.config.check;"
        "print([m for m in ('torch','ray','transformers','tensordict','hydra','omegaconf','yaml') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
