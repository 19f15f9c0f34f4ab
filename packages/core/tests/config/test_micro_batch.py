from __future__ import annotations

from types import SimpleNamespace

from rl_core.config.micro_batch import GLOBAL_KEYS, model_parallel_size
from rl_core.config.schema import core_schema

ACTOR = "actor_rollout_ref.actor"


class Sliced:
    def model_parallel_size(self, num_workers):
        return 4 if num_workers >= 4 else 1


def test_keys_exist_both_ways():
    for section, key in GLOBAL_KEYS:
        assert f"{section}.{key}" in core_schema().keys
        assert f"{section}.{key}_per_gpu" in core_schema().keys


def test_sizes_multiply():
    section = SimpleNamespace(ulysses_sequence_parallel_size=2, own=Sliced(), other=3)
    assert model_parallel_size(section, 8) == 8
    assert model_parallel_size(section, 2) == 2
    assert model_parallel_size(SimpleNamespace(), 8) == 1


def test_size_over_all_workers_is_divided_by_the_data_parallel_width(composed):
    tree = composed(f"{ACTOR}.ppo_micro_batch_size=16", "trainer.n_gpus_per_node=4").tree
    assert tree.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu == 4
    assert tree.actor_rollout_ref.actor.use_dynamic_bsz is False
    tree = composed(
        f"{ACTOR}.strategy=megatron",
        f"{ACTOR}.megatron.tensor_model_parallel_size=2",
        f"{ACTOR}.ppo_micro_batch_size=16",
        "trainer.n_gpus_per_node=4",
    ).tree
    assert tree.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu == 8
    assert tree.critic.ppo_micro_batch_size_per_gpu == 4


def test_both_ways_at_once_is_refused(problems):
    text = problems(f"{ACTOR}.ppo_micro_batch_size=16", f"{ACTOR}.ppo_micro_batch_size_per_gpu=4")
    assert f"{ACTOR}.ppo_micro_batch_size (16) and {ACTOR}.ppo_micro_batch_size_per_gpu (4) are both given" in text


def test_a_size_that_does_not_divide_is_refused(problems):
    text = problems(f"{ACTOR}.ppo_micro_batch_size=6", "trainer.n_gpus_per_node=4")
    assert f"{ACTOR}.ppo_micro_batch_size (6) is not a multiple of the 4 data-parallel workers" in text
