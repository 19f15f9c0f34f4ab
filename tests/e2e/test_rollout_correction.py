"""Rollout correction in the real loop on the fakes, whose generator and trainer agree to rounding."""

import math

import pytest
import torch
from fakes_training import train
from rl_core.errors import WeightSyncError

pytestmark = pytest.mark.heavy

KEY = "algorithm.rollout_correction"
GRPO = ["algorithm.adv_estimator=grpo"]
ASYNC = [
    "trainer.v1.trainer_mode=colocate_async",
    "data.max_response_length=60",
    "actor_rollout_ref.rollout.max_num_seqs=3",
    "actor_rollout_ref.rollout.ignore_eos=true",
    "trainer.total_training_steps=6",
    "trainer.total_epochs=2",
]


def same(one, other):
    return all(torch.equal(one.policy[name], other.policy[name]) for name in one.policy)


def close(one, other, atol=1e-9):
    return all(torch.allclose(one.policy[name], other.policy[name], rtol=0, atol=atol) for name in one.policy)


def finite(run):
    return all(math.isfinite(value) for step in run.metrics for value in step.values() if isinstance(value, float))


@pytest.fixture(scope="module")
def plain(tmp_path_factory, installed_fakes):
    return train(tmp_path_factory.mktemp("plain"), *GRPO)


@pytest.fixture(scope="module")
def agreeing(plain, tmp_path_factory, installed_fakes):
    """Two runs whose generator says to the bit what the trainer says, without and with correction."""
    with pytest.MonkeyPatch.context() as patch:
        from rl_core.trainer.ppo import trainer

        compare = trainer.check_parity

        def copy_log_probs(batch, *rest, **more):
            batch.batch["rollout_log_probs"] = batch.batch["old_log_probs"]
            return compare(batch, *rest, **more)

        patch.setattr(trainer, "check_parity", copy_log_probs)
        both = [f"{KEY}.rollout_is=token", f"{KEY}.rollout_is_batch_normalize=true", f"{KEY}.rollout_rs=token_k1"]
        folder = tmp_path_factory.mktemp("agreeing")
        return [
            train(folder / name, *GRPO, *more)
            for name, more in (("off", []), ("on", [*both, f"{KEY}.rollout_rs_threshold=2.0"]))
        ]


def test_where_generator_and_trainer_agree_nothing_changes(plain, agreeing):
    off, on = agreeing
    assert same(plain, off)
    assert same(off, on)
    for step in on.metrics:
        assert step["rollout_corr/rollout_is_min"] == step["rollout_corr/rollout_is_max"] == 1.0
        assert step["rollout_corr/rollout_is_eff_sample_size"] == 1.0
        assert step["rollout_corr/rollout_rs_masked_fraction"] == step["rollout_corr/kl"] == 0.0
        assert step["rollout_corr/training_ppl"] == step["rollout_corr/rollout_ppl"] > 1


@pytest.mark.parametrize("estimator", ["gae", "grpo"])
def test_all_rows_rejected_is_a_step_without_an_update(estimator, tmp_path, installed_fakes, monkeypatch):
    def shift(batch, *rest, **more):
        column = batch.batch["rollout_log_probs"]
        batch.batch["rollout_log_probs"] = column + 1.0
        return {}

    monkeypatch.setattr("rl_core.trainer.ppo.trainer.check_parity", shift)
    keys = [f"algorithm.adv_estimator={estimator}", f"{KEY}.rollout_rs=seq_mean_k1", f"{KEY}.rollout_rs_threshold=2.0"]
    run = train(tmp_path / "all", *keys, f"{KEY}.rollout_is=sequence", f"{KEY}.rollout_is_batch_normalize=true")
    frozen = train(tmp_path / "frozen", *keys[:1], "actor_rollout_ref.actor.optim.lr=0", "critic.optim.lr=0")

    assert finite(run)
    assert len(run.metrics) == 2
    for step in run.metrics:
        assert step["rollout_corr/rollout_rs_seq_masked_fraction"] == 1.0
        assert step["rollout_corr/kl"] == pytest.approx(1.0, abs=1e-5)
        assert step["actor/optimizer_steps"] == step.get("critic/optimizer_steps", 0) == 0
    assert same(run, frozen)


def test_bypass_leaves_rescoring_out_after_the_first_step(plain, tmp_path, installed_fakes):
    run = train(tmp_path, *GRPO, f"{KEY}.bypass_mode=true")
    first, second = run.metrics
    assert first["training/logprob_gap/max"] < 1e-6
    assert not any(name.startswith("training/logprob_gap") for name in second)
    assert "timing_s/old_log_prob" in first
    assert "timing_s/old_log_prob" not in second
    assert abs(second["rollout_corr/kl"]) < 1
    assert close(plain, run, atol=1e-5)  # the generator reports single precision, this run trains in double
    kept = train(tmp_path / "kept", *GRPO, "actor_rollout_ref.actor.use_rollout_log_probs=true")
    assert same(kept, run)
    assert not any(name.startswith("rollout_corr") for step in kept.metrics for name in step)


@pytest.mark.parametrize("switch", [f"{KEY}.bypass_mode=true", "actor_rollout_ref.actor.use_rollout_log_probs=true"])
def test_the_first_hand_over_is_checked_all_the_same(switch, tmp_path, installed_fakes, monkeypatch):
    monkeypatch.setattr("rl_core.trainer.ppo.parity.parity_metrics", lambda batch: {"training/logprob_gap/mean": 9.0})
    with pytest.raises(WeightSyncError, match="9 nats"):
        train(tmp_path, *GRPO, switch)


def test_bypass_with_reinforce_is_the_same_for_any_cut(tmp_path, installed_fakes):
    keys = [f"{KEY}.bypass_mode=true", f"{KEY}.loss_type=reinforce", f"{KEY}.rollout_is=sequence"]
    keys += [f"{KEY}.rollout_rs=seq_mean_k3", f"{KEY}.rollout_rs_threshold=0.01"]
    keys += ["actor_rollout_ref.actor.ppo_epochs=2"]
    one = train(tmp_path / "one", *GRPO, *keys)
    cut = train(
        tmp_path / "cut",
        *GRPO,
        *keys,
        "trainer.n_gpus_per_node=2",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
    )
    assert close(one, cut)
    assert finite(one)
    for a, b in zip(one.metrics, cut.metrics, strict=True):
        for name in a:
            if name.startswith("rollout_corr/"):
                assert a[name] == pytest.approx(b[name], rel=1e-6, abs=1e-9), name


def test_tokens_of_older_weights_are_weighed(tmp_path, installed_fakes):
    run = train(tmp_path, *GRPO, *ASYNC, f"{KEY}.rollout_is=token")
    stale = [step for step in run.metrics if step["rollout/off_policy_tokens"] > 0]
    assert stale
    assert all(step["rollout_corr/rollout_is_std"] > 1e-4 for step in stale)
    assert max(step["rollout_corr/rollout_is_max"] for step in stale) > 1
    assert all(step["rollout_corr/rollout_is_eff_sample_size"] <= 1 for step in run.metrics)
    assert run.metrics[0]["rollout_corr/rollout_is_max"] == pytest.approx(1, abs=1e-6)
    assert finite(run)
