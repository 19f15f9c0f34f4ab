from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.config.batch_math import batch_errors, batch_plan, update_arithmetic
from rl_core.config.root import PPOTrainerConfig
from rl_core.errors import ConfigError


def tree(train, mini, n=1, micro=None, epochs=1, critic=False, **critic_keys):
    """The keys that the arithmetic reads, everything derived filled in."""
    config = PPOTrainerConfig()
    config.data.train_batch_size = train
    config.actor_rollout_ref.rollout.n = n
    actor = config.actor_rollout_ref.actor
    actor.ppo_mini_batch_size, actor.ppo_epochs = mini, epochs
    actor.ppo_micro_batch_size_per_gpu, actor.use_dynamic_bsz = micro, micro is None
    config.critic.enable = critic
    config.critic.use_dynamic_bsz = True
    for key, value in critic_keys.items():
        setattr(config.critic, key, value)
    return config


def only_error(config, world_size):
    (error,) = batch_errors(config, world_size)
    return error


def test_no_response_for_a_worker():
    error = only_error(tree(train=8, mini=8, n=1, micro=1), 16)
    assert "8·1/16 = 0" in error
    assert "actor_rollout_ref.actor.ppo_mini_batch_size (8) x rollout.n (1)" in error


def test_share_of_a_worker_does_not_divide_into_passes():
    error = only_error(tree(train=6, mini=6, n=2, micro=2), 4)
    assert "12/4 = 3 per worker, which is not divisible by" in error
    assert "ppo_micro_batch_size_per_gpu (2)" in error
    assert "Nearest: 1 or 3." in error


def test_step_does_not_divide_into_mini_batches():
    error = only_error(tree(train=10, mini=4, n=1), 1)
    assert "data.train_batch_size (10) is not a multiple of actor_rollout_ref.actor.ppo_mini_batch_size (4)" in error
    assert "10 is not divisible by 4" in error
    assert "Nearest mini-batch sizes: 2 or 5." in error


def test_mini_batch_larger_than_the_step():
    error = only_error(tree(train=8, mini=16), 1)
    assert "16 > 8" in error
    assert "Set actor_rollout_ref.actor.ppo_mini_batch_size=8" in error


def test_sizes_that_fit_are_worked_out():
    plan = batch_plan(tree(train=8, mini=4, n=4, micro=2), 8)
    assert (plan.prompts, plan.n, plan.responses) == (8, 4, 32)
    actor = plan.actor
    assert (actor.mini_batch_responses, actor.responses_per_worker, actor.micro_batches) == (16, 2, 1)
    assert (actor.mini_batches, actor.optimizer_steps) == (2, 2)
    assert plan.critic is None


def test_epochs_multiply_optimizer_steps():
    assert batch_plan(tree(train=8, mini=4, epochs=3), 1).actor.optimizer_steps == 6


def test_no_size_and_no_packing_is_refused():
    config = tree(train=8, mini=8)
    config.actor_rollout_ref.actor.use_dynamic_bsz = False
    assert "no micro-batch size is given" in only_error(config, 1)


def test_uneven_shares_are_legal_when_packed_by_tokens():
    sizes = batch_plan(tree(train=6, mini=3, n=3), 2).actor
    assert not sizes.is_even
    assert sizes.responses_per_worker == 5
    assert sizes.micro_batches is None


def test_uneven_shares_are_refused_with_a_micro_batch_size():
    assert "9/2 is not whole" in only_error(tree(train=3, mini=3, n=3, micro=1), 2)


def test_workers_that_share_a_sequence_count_once():
    config = tree(train=8, mini=8, micro=1)
    config.actor_rollout_ref.actor.ulysses_sequence_parallel_size = 2
    assert batch_plan(config, 8).actor.dp_size == 4
    assert "5 workers of the actor cannot be cut into groups of 2" in only_error(config, 5)


def test_critic_is_judged_by_its_own_keys():
    config = tree(train=8, mini=8, critic=True, ppo_mini_batch_size=3)
    assert "critic.ppo_mini_batch_size (3)" in only_error(config, 1)


def test_critic_without_keys_follows_the_actor():
    plan = batch_plan(tree(train=8, mini=4, epochs=2, critic=True), 1)
    assert (plan.critic.mini_batch_prompts, plan.critic.optimizer_steps) == (4, 4)


def test_critic_on_its_own_pool_has_its_own_width():
    config = tree(train=8, mini=8, critic=True, enable_resource_pool=True, nnodes=1, n_gpus_per_node=2)
    plan = batch_plan(config, 8)
    assert (plan.actor.dp_size, plan.critic.dp_size) == (8, 2)


def test_plan_raises_every_error():
    with pytest.raises(ConfigError, match=r"16 > 8(.|\n)*8·1/16|8·1/16"):
        batch_plan(tree(train=8, mini=8, micro=1), 16)


@settings(max_examples=200)
@given(
    mini=st.integers(1, 12),
    times=st.integers(1, 4),
    n=st.integers(1, 6),
    workers=st.integers(1, 6),
    micro=st.one_of(st.none(), st.integers(1, 6)),
)
def test_accepted_sizes_use_every_response_exactly_once(mini, times, n, workers, micro):
    config = tree(train=mini * times, mini=mini, n=n, micro=micro)
    if batch_errors(config, workers):
        return
    sizes = update_arithmetic(config, "actor", workers)
    assert sizes.mini_batches * sizes.mini_batch_responses == mini * times * n
    assert sizes.mini_batch_responses >= sizes.dp_size
    if micro is not None:
        assert sizes.micro_batches * micro * sizes.dp_size == sizes.mini_batch_responses
