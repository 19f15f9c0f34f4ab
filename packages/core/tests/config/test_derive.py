from __future__ import annotations

import pytest
from rl_core.config.derive import FOLLOWS, PASSES
from rl_core.config.schema import core_schema

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
REF = "actor_rollout_ref.ref"


def test_tables_name_existing_keys():
    schema = core_schema()
    for key, source in FOLLOWS:
        assert key in schema.keys
        assert source in schema.keys
    for section, switch, micro_batch, _ in PASSES:
        for name in (switch, micro_batch, f"{micro_batch}_per_gpu"):
            assert f"{section}.{name}" in schema.keys


def test_every_nullable_follower_is_filled(composed):
    config = composed("actor_rollout_ref.model.path=/m")
    unset = {"data.tool_config_path", "data.function_tool_path"}
    for key, _ in FOLLOWS:
        node = config.tree
        for part in key.split("."):
            node = getattr(node, part)
        assert (node is None) == (key in unset), key


def test_clip_ratio_alone_takes_effect_on_both_sides(composed):
    actor = composed(f"{ACTOR}.clip_ratio=0.3").tree.actor_rollout_ref.actor
    assert (actor.clip_ratio_low, actor.clip_ratio_high) == (0.3, 0.3)
    actor = composed(f"{ACTOR}.clip_ratio=0.3", f"{ACTOR}.clip_ratio_high=0.28").tree.actor_rollout_ref.actor
    assert (actor.clip_ratio_low, actor.clip_ratio_high) == (0.3, 0.28)


def test_lengths_and_seeds(composed):
    tree = composed("data.max_prompt_length=100", "data.max_response_length=50", "trainer.seed=7").tree
    rollout = tree.actor_rollout_ref.rollout
    assert (rollout.prompt_length, rollout.response_length, rollout.seed, tree.data.seed) == (100, 50, 7, 7)
    assert tree.actor_rollout_ref.actor.loss_scale_factor == 50


def test_passes_are_packed_by_tokens_when_no_size_is_given(composed):
    tree = composed().tree
    assert tree.actor_rollout_ref.actor.use_dynamic_bsz is True
    assert tree.critic.use_dynamic_bsz is True
    assert tree.actor_rollout_ref.rollout.log_prob_use_dynamic_bsz is True
    assert tree.actor_rollout_ref.ref.log_prob_use_dynamic_bsz is True


def test_a_size_turns_packing_off_and_the_others_follow(composed):
    tree = composed(f"{ACTOR}.ppo_micro_batch_size_per_gpu=8", f"{REF}.log_prob_micro_batch_size_per_gpu=16").tree
    assert tree.actor_rollout_ref.actor.use_dynamic_bsz is False
    assert (tree.critic.use_dynamic_bsz, tree.critic.ppo_micro_batch_size_per_gpu) == (False, 8)
    assert tree.critic.forward_micro_batch_size_per_gpu == 8
    rollout = tree.actor_rollout_ref.rollout
    assert (rollout.log_prob_use_dynamic_bsz, rollout.log_prob_micro_batch_size_per_gpu) == (False, 8)
    ref = tree.actor_rollout_ref.ref
    assert (ref.log_prob_use_dynamic_bsz, ref.log_prob_micro_batch_size_per_gpu) == (False, 16)


def test_one_role_may_pack_while_the_actor_does_not(composed):
    tree = composed(f"{ACTOR}.ppo_micro_batch_size_per_gpu=8", "critic.use_dynamic_bsz=True").tree
    assert tree.critic.use_dynamic_bsz is True
    assert tree.critic.ppo_micro_batch_size_per_gpu is None


def test_critic_follows_the_actor_where_it_says_nothing(composed):
    critic = composed(
        f"{ACTOR}.ppo_mini_batch_size=64",
        f"{ACTOR}.ppo_epochs=2",
        f"{ACTOR}.loss_agg_mode=seq-mean-token-mean",
        "actor_rollout_ref.model.path=/m",
        "critic.ppo_epochs=3",
    ).tree.critic
    assert (critic.ppo_mini_batch_size, critic.ppo_epochs, critic.loss_agg_mode) == (64, 3, "seq-mean-token-mean")
    assert critic.model.path == "/m"
    assert critic.optim.lr == 1e-5


@pytest.mark.parametrize(("temperature", "samples"), [(0, False), (0.7, True)])
def test_validation_samples_when_its_temperature_says_so(temperature, samples, composed):
    rollout = composed(f"{ROLLOUT}.val_kwargs.temperature={temperature}").tree.actor_rollout_ref.rollout
    assert rollout.val_kwargs.do_sample is samples


@pytest.mark.parametrize(("estimator", "enabled"), [("gae", True), ("grpo", False), ("mine", False)])
def test_there_is_a_critic_exactly_when_the_estimator_needs_values(estimator, enabled, composed):
    assert composed(f"algorithm.adv_estimator={estimator}").tree.critic.enable is enabled


@pytest.mark.parametrize(("estimator", "is_on"), [("gae", False), ("squares", True), ("mine", False)])
def test_squared_probabilities_are_summed_exactly_when_the_estimator_needs_them(estimator, is_on, composed):
    actor = composed(f"algorithm.adv_estimator={estimator}").tree.actor_rollout_ref.actor
    assert actor.calculate_sum_pi_squared is is_on


def test_squared_probabilities_may_be_asked_for(composed):
    actor = composed(
        "algorithm.adv_estimator=grpo", f"{ACTOR}.calculate_sum_pi_squared=True"
    ).tree.actor_rollout_ref.actor
    assert actor.calculate_sum_pi_squared is True


@pytest.mark.parametrize(("estimator", "is_drawn"), [("gae", False), ("remax", True), ("mine", False)])
def test_a_greedy_response_is_drawn_exactly_when_the_estimator_needs_it(estimator, is_drawn, composed):
    rollout = composed(f"algorithm.adv_estimator={estimator}").tree.actor_rollout_ref.rollout
    assert rollout.greedy_baseline is is_drawn


def test_a_greedy_response_may_be_asked_for(composed):
    rollout = composed("actor_rollout_ref.rollout.greedy_baseline=true").tree.actor_rollout_ref.rollout
    assert rollout.greedy_baseline is True


def test_critic_may_be_asked_for(composed):
    assert composed("algorithm.adv_estimator=grpo", "critic.enable=True").tree.critic.enable is True
