from __future__ import annotations

from rl_core.config.roles import (
    SHARED,
    Pool,
    idle_phases,
    needs_critic,
    needs_reference,
    pool_errors,
    pools,
    roles,
    side_by_side,
)
from rl_core.config.root import PPOTrainerConfig


def tree(**sections):
    config = PPOTrainerConfig()
    config.critic.enable = False
    config.trainer.n_gpus_per_node = 4
    for path, value in sections.items():
        *above, last = path.split("__")
        node = config
        for part in above:
            node = getattr(node, part)
        setattr(node, last, value)
    return config


def test_reference_is_needed_by_either_kl_term():
    assert not needs_reference(tree())
    assert needs_reference(tree(algorithm__use_kl_in_reward=True))
    assert needs_reference(tree(actor_rollout_ref__actor__use_kl_loss=True))


def test_roles_follow_the_keys():
    assert roles(tree()) == ("actor", "rollout")
    everything = tree(critic__enable=True, algorithm__use_kl_in_reward=True, reward_model__enable=True)
    assert needs_critic(everything)
    assert roles(everything) == ("actor", "rollout", "ref", "critic", "reward_model")


def test_one_pool_by_default():
    assert pools(tree(critic__enable=True)) == (Pool(SHARED, ("actor", "rollout", "critic"), (4,)),)
    ((_, waits),) = idle_phases(tree(critic__enable=True))
    assert waits == ()


def test_pools_of_their_own():
    config = tree(
        critic__enable=True,
        critic__enable_resource_pool=True,
        critic__nnodes=1,
        critic__n_gpus_per_node=2,
        actor_rollout_ref__rollout__nnodes=2,
    )
    assert pools(config) == (
        Pool(SHARED, ("actor",), (4,)),
        Pool("rollout_pool", ("rollout",), (4, 4)),
        Pool("critic_pool", ("critic",), (2,)),
    )
    assert pool_errors(config) == []
    waits = {pool.name: phases for pool, phases in idle_phases(config)}
    assert waits[SHARED] == ("generation", "critic update")
    assert waits["rollout_pool"] == ("old log-probs", "values", "critic update", "actor update")
    assert waits["critic_pool"] == ("generation", "actor update")


def test_phases_that_begin_together_are_those_of_different_pools():
    assert side_by_side(tree(critic__enable=True)) == ()
    apart = tree(critic__enable=True, critic__enable_resource_pool=True, critic__nnodes=1, critic__n_gpus_per_node=2)
    assert side_by_side(apart) == ("old log-probs", "values")
    apart.critic.enable = False
    assert side_by_side(apart) == ()


def test_a_pool_without_workers_is_an_error():
    (error,) = pool_errors(tree(critic__enable=True, critic__enable_resource_pool=True))
    assert "critic" in error
    assert "0 workers" in error
