from __future__ import annotations

import pytest
from rl_core.config.aliases import ALIASES, apply_aliases, plugin_aliases
from rl_core.config.schema import core_schema


def test_every_rule_leads_to_a_known_key_and_comes_from_an_unknown_one():
    schema = core_schema()
    for old, new in ALIASES:
        assert new in schema.keys or new in schema.sections, new
        assert old not in schema.keys, old


def test_a_section_moves_as_a_whole_with_one_notice():
    given = {"reward": {"num_workers": 4, "custom_reward_function": {"path": "r.py", "name": "f"}}}
    renamed = apply_aliases(given, ALIASES)
    assert given == {"reward_model": {"num_workers": 4}, "custom_reward_function": {"path": "r.py", "name": "f"}}
    assert renamed.notices == [
        "reward.custom_reward_function is read as custom_reward_function.",
        "reward is read as reward_model.",
    ]
    assert renamed.errors == []


def test_names_of_the_manager_and_the_model_reach_their_canonical_keys():
    given = {
        "reward": {
            "reward_manager": {"name": "naive", "module": {"path": "m.py"}},
            "reward_model": {"enable": True, "model_path": "/rm"},
            "sandbox_fusion": {"url": "http://s"},
        }
    }
    apply_aliases(given, ALIASES)
    assert given == {
        "reward_model": {
            "reward_manager": "naive",
            "reward_manager_module": {"path": "m.py"},
            "enable": True,
            "model": {"path": "/rm"},
            "sandbox_fusion": {"url": "http://s"},
        }
    }


def test_both_spellings_with_one_value_are_fine():
    given = {"reward": {"num_workers": 4}, "reward_model": {"num_workers": 4}}
    assert apply_aliases(given, ALIASES).errors == []
    assert given == {"reward_model": {"num_workers": 4}}


def test_both_spellings_with_different_values_are_refused_naming_both():
    given = {"reward": {"num_workers": 4}, "reward_model": {"num_workers": 8}}
    (error,) = apply_aliases(given, ALIASES).errors
    assert "reward.num_workers and reward_model.num_workers" in error
    assert "4 and 8" in error


def test_written_spelling_is_remembered_through_two_rules():
    given = {"reward": {"reward_model": {"model_path": "/rm"}}}
    renamed = apply_aliases(given, ALIASES)
    assert renamed.written == {"reward_model.model.path": "reward.reward_model.model_path"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [(True, {"trainer": {"max_actor_ckpt_to_keep": 1, "max_critic_ckpt_to_keep": 1}}), (False, {})],
)
def test_keep_only_the_newest_checkpoint(value, expected):
    given = {"trainer": {"remove_previous_ckpt_in_save": value}}
    renamed = apply_aliases(given, ALIASES)
    assert given == expected
    assert len(renamed.notices) == 1


def test_keep_only_the_newest_contradicts_another_number():
    given = {"trainer": {"remove_previous_ckpt_in_save": True, "max_actor_ckpt_to_keep": 3}}
    (error,) = apply_aliases(given, ALIASES).errors
    assert "trainer.max_actor_ckpt_to_keep" in error


def test_schedule_under_its_old_name(composed):
    config = composed("actor_rollout_ref.actor.optim.warmup_style=cosine", "critic.optim.clip_grad=0.5")
    assert config.tree.actor_rollout_ref.actor.optim.lr_scheduler_type == "cosine"
    assert config.tree.critic.grad_clip == 0.5
    assert len(config.notices) == 2


def test_plugin_section_answers_to_the_plugins_names():
    assert plugin_aliases("critic", "own", ("a", "own", "b")) == [
        ("critic.a", "critic.own"),
        ("critic.b", "critic.own"),
    ]


def test_plugin_section_by_plugin_name(composed, problems):
    config = composed("critic.fsdp.param_offload=True")
    assert config.tree.critic.fsdp_config.param_offload is True
    assert config.notices == ("critic.fsdp is read as critic.fsdp_config.",)
    assert "two spellings of one key" in problems(
        "critic.fsdp.param_offload=True", "critic.fsdp_config.param_offload=False"
    )
