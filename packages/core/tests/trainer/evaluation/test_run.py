from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rl_core.contracts.reward import RewardResult
from rl_core.errors import CheckpointError, MissingRewardError, MissingRolloutError
from rl_core.trainer.checkpoint import Checkpoint
from rl_core.trainer.evaluation.run import load_weights, require_answers
from rl_core.trainer.ppo.sampler import DEADLINE_KEY


def config(rollouts=0.5, rewards=0.5):
    trainer = SimpleNamespace(max_failed_rollout_fraction=rollouts, max_failed_reward_fraction=rewards)
    return SimpleNamespace(trainer=trainer)


def answers(errors, scores):
    """Two answers to each prompt: why some are missing, and the scores of those that came."""
    uids = np.array([f"p{row // 2}" for row in range(len(errors))], dtype=object)
    names = np.array([f"{uid}-{row % 2}" for row, uid in enumerate(uids)], dtype=object)
    prompts = SimpleNamespace(non_tensor_batch={"uid": uids, "request_id": names}, meta_info={DEADLINE_KEY: None})
    results = [RewardResult(score, error=None if score is not None else "no number") for score in scores]
    return SimpleNamespace(prompts=prompts, errors=errors, results=results)


def test_what_is_missing_within_the_limits_is_let_through():
    require_answers(answers([None, "late", None, "late"], [1.0, None]), config())


def test_too_many_missing_rollouts_are_refused_by_prompt():
    with pytest.raises(MissingRolloutError, match=r"2 of 4 rollouts failed .*First reasons: p0: late; p1: gone"):
        require_answers(answers([None, "late", None, "gone"], [1.0, 1.0]), config(rollouts=0.49))


def test_too_many_missing_rewards_are_refused():
    with pytest.raises(MissingRewardError, match=r"1 of 2 rewards are missing .*no number"):
        require_answers(answers([None, None], [1.0, None]), config(rewards=0.49))


class Policy:
    """A worker group that notes what it loads."""

    def __init__(self):
        self.loaded = []

    def model_fingerprint(self):
        return "small"

    def load_checkpoint(self, folder, version):
        self.loaded.append((folder, version))


def load(policy, checkpoint):
    load_weights(
        policy, checkpoint, SimpleNamespace(actor_rollout_ref=SimpleNamespace(model=SimpleNamespace(path="base")))
    )


def test_the_checkpoints_weights_come_with_their_version(tmp_path):
    (tmp_path / "trainer_state.json").write_text('{"policy_version": 7}')
    policy = Policy()
    load(policy, Checkpoint(tmp_path, 3, {"model": "small"}))
    assert policy.loaded == [(str(tmp_path / "actor"), 7)]


def test_a_model_folder_needs_nothing_loaded():
    policy = Policy()
    load(policy, None)
    assert policy.loaded == []


def test_a_checkpoint_of_another_model_is_refused():
    policy = Policy()
    with pytest.raises(CheckpointError, match=r"another model \(fingerprint large\) than the one in base \(small\)"):
        load(policy, Checkpoint(Path("run/global_step_3"), 3, {"model": "large"}))
    assert policy.loaded == []
