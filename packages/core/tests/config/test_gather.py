from __future__ import annotations

import pytest
from hydra.core.config_store import ConfigStore
from rl_core.config.gather import gather, register_defaults
from rl_core.config.generate import GENERATED_FILE
from rl_core.errors import ConfigError

ROLLOUT = "actor_rollout_ref.rollout"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "job.yaml").write_text(
        "actor_rollout_ref:\n  rollout:\n    name: echo\n    n: 4\ndata:\n  train_batch_size: 8\n"
    )
    (tmp_path / "with_base.yaml").write_text("defaults:\n  - ppo_trainer\n  - _self_\ntrainer:\n  nnodes: 3\n")
    (tmp_path / "typo.yaml").write_text("actor_rollout_ref:\n  rollout:\n    name: echo\n    temprature: 0.7\n")
    (tmp_path / "list.yaml").write_text("- 1\n- 2\n")
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "small.yaml").write_text("# @package _global_\ndata:\n  max_response_length: 16\n")
    return tmp_path


def test_only_what_was_given_comes_out():
    assert gather(["+data.apply_chat_template_kwargs.x=1", "trainer.nnodes=2"]).values == {
        "data": {"apply_chat_template_kwargs": {"x": 1}},
        "trainer": {"nnodes": 2},
    }


def test_a_file_and_overrides(folder, registry, composed):
    config = composed(f"{ROLLOUT}.n=8", config_name="job", config_path=folder)
    assert config.tree.data.train_batch_size == 8
    assert config.tree.actor_rollout_ref.rollout.n == 8
    assert config.tree.data.max_prompt_length == 512, "a key that the file leaves out keeps its default"


def test_a_file_that_builds_on_the_base(folder):
    assert gather([], "with_base", folder).values == {"trainer": {"nnodes": 3}}


def test_config_groups_of_the_folder(folder):
    values = gather(["+experiment=small", "trainer.nnodes=2"], "job", folder).values
    assert values["data"] == {"train_batch_size": 8, "max_response_length": 16}


def test_search_folder_beside_the_base(folder):
    assert gather(["+experiment=small"], config_dir=folder).values == {"data": {"max_response_length": 16}}


def test_misspelt_key_in_a_file_names_file_key_and_closest(folder, problems):
    text = problems(config_name="typo", config_path=folder)
    assert f"there is no key {ROLLOUT}.temprature in typo.yaml." in text
    assert f"Closest: {ROLLOUT}.temperature." in text


def test_a_generated_file_of_defaults_means_nothing_was_given(composed):
    config = composed(f"{ROLLOUT}.name=echo", config_name="ppo_trainer", config_path=GENERATED_FILE.parent)
    assert config.given == {f"{ROLLOUT}.name"}


def test_a_dumped_configuration_composes_to_itself(composed, tmp_path):
    from rl_core.config import config_to_yaml

    first = composed("critic.fsdp_config.fsdp_size=2", "data.train_batch_size=256")
    (tmp_path / "dump.yaml").write_text(config_to_yaml(first, resolve=False))
    second = composed(config_name="dump", config_path=tmp_path)
    assert second.tree == first.tree
    assert second.tree.critic.fsdp_config == first.tree.critic.fsdp_config
    assert second.given == first.given | {f"{ROLLOUT}.name"}


def test_what_stood_under_the_base_name_is_put_back():
    register_defaults()
    before = ConfigStore.instance().repo["ppo_trainer.yaml"]
    gather(["trainer.nnodes=2"])
    assert ConfigStore.instance().repo["ppo_trainer.yaml"] is before
    assert before.node.data.train_batch_size == 1024


def test_missing_folder_and_file_are_named(tmp_path):
    with pytest.raises(ConfigError, match="no folder"):
        gather([], "job", tmp_path / "none")
    with pytest.raises(ConfigError, match=r"has no job\.yaml"):
        gather([], "job", tmp_path)
    with pytest.raises(ConfigError, match="Add --config-path"):
        gather([], "job")


def test_a_list_is_no_configuration(folder):
    with pytest.raises(ConfigError, match="list"):
        gather([], "list", folder)


def test_hydras_own_complaint_is_passed_on(folder):
    with pytest.raises(ConfigError, match="Hydra cannot compose"):
        gather(["experiment=none"], "job", folder)
