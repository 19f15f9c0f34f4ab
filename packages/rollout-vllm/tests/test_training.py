"""A whole run with FSDP2 and vLLM, on its CPU build: the generator is always on current weights."""

from __future__ import annotations

import pytest
from rl_testing.models import save_tiny_model
from tiny_runs import train

pytestmark = pytest.mark.heavy

OWN = ("actor_rollout_ref.rollout.name=vllm", "actor_rollout_ref.rollout.vllm.cache_gib=0.25")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with weights and a tokenizer; heads of 32."""
    return save_tiny_model(tmp_path_factory.mktemp("model") / "tiny", hidden_size=128, seed=3)


def steps_of(model, folder, num_steps, *more):
    return train(model, folder, f"trainer.total_training_steps={num_steps}", *more)


def test_every_step_is_sampled_from_the_weights_of_the_step(model, tmp_path):
    steps = steps_of(model, tmp_path, 4, *OWN)
    assert [step["rollout/weight_version"] for step in steps] == [0, 1, 2, 3]
    assert all(step["training/logprob_gap/mean"] < 1e-4 for step in steps)
    assert all(step["rollout/failed"] == 0 for step in steps)
    assert all(step["rollout/kv_cache_tokens"] > 0 for step in steps)
    assert all(step["rollout/preemptions"] == 0 for step in steps)


def test_adapters_served_beside_the_base_model_are_the_merged_weights(model, tmp_path):
    lora = ("actor_rollout_ref.model.lora_rank=4", "actor_rollout_ref.actor.optim.lr=1e-3")
    runs = {
        is_merged: steps_of(
            model, tmp_path / str(is_merged), 3, *OWN, *lora, f"actor_rollout_ref.model.lora.merge={is_merged}"
        )
        for is_merged in (False, True)
    }
    assert all(step["training/logprob_gap/mean"] < 1e-4 for steps in runs.values() for step in steps)
    for name in ("critic/score/mean", "response_length/mean"):
        assert [step[name] for step in runs[False]] == [step[name] for step in runs[True]]
    # After a sleep of level 2 the base model is sent too, so an adapter alone is never less to send here.
    assert runs[False][1]["rollout/weight_bytes"] > runs[True][1]["rollout/weight_bytes"]


@pytest.mark.slow
def test_both_generators_learn_and_nothing_else_changes(model, tmp_path):
    for name, chosen in {"hf": ("actor_rollout_ref.rollout.name=hf",), "vllm": OWN}.items():
        steps = steps_of(model, tmp_path / name, 20, *chosen)
        rewards = [step["critic/score/mean"] for step in steps]
        assert sum(rewards[-4:]) / 4 > sum(rewards[:4]) / 4 + 0.1, (name, rewards)


def test_on_ray(model, tmp_path):
    steps = steps_of(model, tmp_path, 3, *OWN, "trainer.runtime=ray")
    assert all(step["training/logprob_gap/mean"] < 1e-4 for step in steps)
