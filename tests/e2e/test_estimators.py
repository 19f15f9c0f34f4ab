"""Every advantage estimator of core trains, and the same whatever the work is cut into."""

import pytest
import torch
from fakes_training import train
from rl_core.trainer.ppo.advantage import resample

pytestmark = pytest.mark.heavy

ROLLOUTS = "actor_rollout_ref.rollout.n=4"
REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": solution_str.count("a") + 0.1, "letters": solution_str.count("a"), "short": -len(solution_str)}
"""
ESTIMATORS = {
    name: [f"algorithm.adv_estimator={name}"]
    for name in (
        *("grpo_passk", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "rloo", "remax", "opo", "gpg"),
        *("optimal_token_baseline", "tir_optimal_token_baseline"),
    )
} | {
    "gdpo": ["algorithm.adv_estimator=gdpo", "algorithm.gdpo_reward_keys=[letters,short]"],
    "gae + PF-PPO": ["algorithm.adv_estimator=gae", "algorithm.use_pf_ppo=true"],
    "rloo + PF-PPO": [
        *("algorithm.adv_estimator=rloo", "algorithm.use_pf_ppo=true", "algorithm.pf_ppo.reweight_method=max_min"),
    ],
}


@pytest.mark.parametrize("overrides", ESTIMATORS.values(), ids=list(ESTIMATORS))
def test_two_workers_take_the_steps_of_one(overrides, tmp_path, installed_fakes):
    rewards = tmp_path / "rewards.py"
    rewards.write_text(REWARD, encoding="utf-8")
    common = [ROLLOUTS, *overrides, f"custom_reward_function.path={rewards}"]
    one = train(tmp_path / "one", *common)
    two = train(tmp_path / "two", *common, "trainer.n_gpus_per_node=2")

    assert all(step["actor/grad_norm"] > 0 for step in one.metrics)
    for name, weight in one.policy.items():
        assert torch.isfinite(weight).all()
        torch.testing.assert_close(two.policy[name], weight, rtol=1e-10, atol=1e-12, msg=name)
    drawn = [step.get("pf_ppo/distinct_rows") for step in one.metrics]
    assert drawn == [step.get("pf_ppo/distinct_rows") for step in two.metrics]
    assert ("algorithm.use_pf_ppo=true" in overrides) == all(value is not None and value < 1 for value in drawn)


def test_what_is_drawn_on_the_controller_depends_on_run_and_step(tmp_path, installed_fakes, monkeypatch):
    seeds = []

    def recorded(batch, algorithm, seed):
        seeds.append(tuple(seed))
        return resample(batch, algorithm, seed)

    monkeypatch.setattr("rl_core.trainer.ppo.trainer.resample", recorded)
    run = train(tmp_path, ROLLOUTS, *ESTIMATORS["rloo + PF-PPO"], "trainer.seed=7")
    assert seeds == [(7, step + 1) for step in range(len(run.metrics))]
    assert len(seeds) > 1
