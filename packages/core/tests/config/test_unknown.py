from __future__ import annotations

import pytest

ACTOR = "actor_rollout_ref.actor"


@pytest.mark.parametrize(
    ("override", "closest"),
    [
        ("actor.optim.lrr=1e-6", f"{ACTOR}.optim.lr"),
        ("+actor.optim.lrr=1e-6", f"{ACTOR}.optim.lr"),
        (f"{ACTOR}.optim.lrr=1e-6", f"{ACTOR}.optim.lr"),
        (f"+{ACTOR}.optim.lrr=1e-6", f"{ACTOR}.optim.lr"),
        ("++actor_rollout_ref.rollout.temprature=0.7", "actor_rollout_ref.rollout.temperature"),
        ("+algorithm.kl_coeff=0.1", "algorithm.kl_ctrl.kl_coef"),
        ("+optim.lrr=1e-6", "optim.lr"),
        ("trainer.total_epoch=3", "trainer.total_epochs"),
        (f"{ACTOR}.fsdp_config.param_ofload=True", f"{ACTOR}.fsdp_config.param_offload"),
    ],
)
def test_misspelt_key_is_refused_and_the_closest_is_named(override, closest, problems):
    text = problems(override)
    key = override.lstrip("+").partition("=")[0]
    assert f"there is no key {key}." in text
    (line,) = [line for line in text.splitlines() if "Closest" in line]
    assert closest in line


def test_every_unknown_key_is_reported(problems):
    text = problems("data.a_a=1", "trainer.b_b=2", "+nothing.like.it=3")
    assert [f"there is no key {key}." in text for key in ("data.a_a", "trainer.b_b", "nothing.like.it")] == [True] * 3


def test_spelling_of_the_user_is_shown_when_it_was_renamed(problems):
    assert "there is no key reward.num_workrs (read as reward_model.num_workrs)." in problems("reward.num_workrs=3")


def test_another_plugins_section_says_how_to_select_it(problems):
    text = problems(f"{ACTOR}.megatron.tensor_model_parallel_size=2")
    assert f"{ACTOR}.megatron belongs to backend 'megatron' (rl-engines 1.0)" in text
    assert f"{ACTOR}.strategy=megatron" in text
    assert "actor_rollout_ref.rollout.echo belongs to rollout 'echo'" in problems(
        "actor_rollout_ref.rollout.echo.text=hi"
    )


def test_selected_for_one_role_is_still_foreign_to_another(problems):
    text = problems(f"{ACTOR}.strategy=megatron", "critic.strategy=megatron", "critic.fsdp_config.fsdp_size=2")
    assert "critic.fsdp_config belongs to backend 'fsdp'" in text
    assert "critic.strategy=fsdp" in text


def test_foreign_section_that_repeats_its_defaults_is_no_error(problems):
    assert problems("critic.megatron.tensor_model_parallel_size=1") == ""


def test_section_of_a_known_plugin_that_is_not_installed(core_only):
    from rl_core.config import compose_leniently

    composition = compose_leniently(
        ["critic.strategy=x", f"{ACTOR}.fsdp_config.param_offload=true"], registry=core_only
    )
    text = "\n".join(map(str, composition.errors))
    assert "pip install rl-backend-fsdp" in text
    assert "there is no key" not in text


def test_known_but_absent_plugins_section_beside_a_working_one(problems):
    text = problems(f"{ACTOR}.strategy=plain", f"{ACTOR}.deepspeed.zero_stage=3")
    assert "belongs to backend 'deepspeed', which is not installed" in text
    assert "pip install rl-backend-deepspeed" in text


def test_keys_of_other_systems_point_to_ours(problems):
    assert "actor_rollout_ref.actor.strategy=NAME" in problems("model_engine=megatron")
