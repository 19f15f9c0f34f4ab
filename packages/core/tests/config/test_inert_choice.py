from __future__ import annotations

import pytest
from rl_core.config.inert_choice import RULES, inert_choices
from rl_core.config.schema import core_schema

ACTOR = "actor_rollout_ref.actor"


def test_rules_name_existing_keys():
    for rule in RULES:
        for start in rule.keys:
            assert any(path == start or path.startswith(start) for path in core_schema().keys), start


def test_nothing_is_said_about_keys_that_were_not_given(composed):
    assert inert_choices(composed("algorithm.adv_estimator=grpo"), {}) == []


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (
            ["algorithm.adv_estimator=grpo", "critic.optim.lr=1e-5"],
            "critic.optim.lr has no effect: there is no value function in this run.",
        ),
        (
            ["algorithm.adv_estimator=grpo", "algorithm.lam=0.95"],
            "algorithm.lam has no effect: advantage estimator 'grpo'",
        ),
        (["algorithm.norm_adv_by_std_in_grpo=false"], "algorithm.norm_adv_by_std_in_grpo has no effect"),
        ([f"{ACTOR}.policy_loss.dro_beta=0.1"], "policy loss 'vanilla' does not read it, 'dro' does"),
        (
            [f"{ACTOR}.policy_loss.loss_mode=sapo", f"{ACTOR}.clip_ratio_c=5"],
            f"{ACTOR}.clip_ratio_c has no effect: policy loss 'sapo' does not read it, 'vanilla' and 'dppo_tv' and "
            "'dppo_kl' do.",
        ),
        ([f"{ACTOR}.policy_loss.loss_mode=kl_cov", f"{ACTOR}.clip_ratio_high=0.3"], "'kl_cov' does not read it"),
        ([f"{ACTOR}.policy_loss.loss_mode=gpg", f"{ACTOR}.clip_ratio=0.3"], "'gpg' does not read it"),
        ([f"{ACTOR}.tau_neg=2"], "'vanilla' does not read it, 'sapo' does."),
        (
            [
                *("algorithm.rollout_correction.bypass_mode=true", "algorithm.rollout_correction.loss_type=reinforce"),
                f"{ACTOR}.clip_ratio_high=0.3",
            ],
            f"{ACTOR}.clip_ratio_high has no effect: algorithm.rollout_correction has bypass_mode and loss_type reinforce",
        ),
        ([f"{ACTOR}.kl_loss_coef=0.01"], f"{ACTOR}.kl_loss_coef has no effect: {ACTOR}.use_kl_loss is false."),
        (["algorithm.kl_ctrl.kl_coef=0.01"], "algorithm.use_kl_in_reward is false"),
        (
            ["algorithm.use_kl_in_reward=true", "algorithm.kl_ctrl.horizon=5"],
            "algorithm.kl_ctrl.horizon has no effect: algorithm.kl_ctrl.type is fixed.",
        ),
        ([f"{ACTOR}.use_dynamic_bsz=true", f"{ACTOR}.ppo_micro_batch_size_per_gpu=4"], "packs passes by tokens"),
        (["trainer.v1.colocate_async.num_warmup_batches=2"], "trainer.v1.trainer_mode is another one"),
        (["actor_rollout_ref.model.lora_alpha=64"], "actor_rollout_ref.model.lora_rank is 0"),
        (["algorithm.filter_groups.max_num_gen_batches=3"], "algorithm.filter_groups.enable is false"),
        (["data.gen_batch_size=3"], "data.gen_batch_size has no effect: algorithm.filter_groups.enable is false."),
        (["trainer.v1.sampler.sampler_kwargs.a=3"], "trainer.v1.sampler.custom_sampler.path is not set"),
        (
            ["trainer.v1.sampler.custom_sampler.path=mine.py", "trainer.v1.trainer_mode=colocate_async"],
            "trainer.v1.trainer_mode has no effect: trainer.v1.sampler.custom_sampler is the schedule.",
        ),
    ],
)
def test_keys_that_the_choice_makes_inert(overrides, text, composed):
    assert any(text in line for line in inert_choices(composed(*overrides), {}))


@pytest.mark.parametrize(
    "overrides",
    [
        ["algorithm.lam=0.95"],
        ["algorithm.adv_estimator=grpo", "algorithm.norm_adv_by_std_in_grpo=false"],
        [f"{ACTOR}.use_kl_loss=true", f"{ACTOR}.kl_loss_coef=0.01"],
        [f"{ACTOR}.ppo_micro_batch_size_per_gpu=4"],
        [f"{ACTOR}.ppo_max_token_len_per_gpu=4096"],
        ["critic.optim.lr=1e-5"],
        [f"{ACTOR}.clip_ratio=0.1", f"{ACTOR}.clip_ratio_c=5"],
        [f"{ACTOR}.policy_loss.loss_mode=gspo", f"{ACTOR}.clip_ratio_low=3e-4", f"{ACTOR}.clip_ratio_high=4e-4"],
        [f"{ACTOR}.policy_loss.loss_mode=clip_cov", f"{ACTOR}.policy_loss.clip_cov_lb=2", f"{ACTOR}.clip_ratio=0.1"],
        [f"{ACTOR}.policy_loss.loss_mode=my_loss", f"{ACTOR}.clip_ratio=0.1", f"{ACTOR}.tau_pos=2"],
    ],
)
def test_keys_that_work_are_not_mentioned(overrides, composed):
    assert inert_choices(composed(*overrides), {}) == []


def test_many_keys_of_one_section_take_one_line(composed):
    config = composed(
        "algorithm.adv_estimator=grpo",
        *[f"critic.optim.{k}=0.1" for k in ("lr", "weight_decay")],
        "critic.grad_clip=1.0",
        "critic.ppo_epochs=2",
    )
    (line,) = inert_choices(config, {})
    assert "and 1 more have no effect" in line


def test_a_plugin_names_common_keys_it_does_not_read(composed, registry):
    config = composed(f"{ACTOR}.use_torch_compile=False")
    sections = {f"{ACTOR}.strategy": registry.load_config("backend", "fsdp")}
    assert inert_choices(config, sections) == [f"{ACTOR}.use_torch_compile has no effect: this backend never compiles."]
