"""Schedules on the fakes: what is cut goes on, nobody is lost or trained twice, and one bad prompt holds nobody up."""

import json
import logging
import shutil

import pytest
from fakes_training import train
from slow_rollouts import dumped, hold_until_cut, misbehave

pytestmark = pytest.mark.heavy

# Three responses at a time of sixteen in flight: when a batch is ready, some are in the middle and others have not begun.
CROWDED = [
    "algorithm.adv_estimator=grpo",
    "data.max_response_length=40",
    "actor_rollout_ref.rollout.max_num_seqs=3",
    "actor_rollout_ref.rollout.ignore_eos=true",
    "trainer.total_training_steps=6",
    "trainer.total_epochs=2",
]
ASYNC = "trainer.v1.trainer_mode=colocate_async"
FROZEN = "actor_rollout_ref.actor.optim.lr=0"
LAYOUTS = {
    "one worker": [],
    "two replicas": ["trainer.n_gpus_per_node=2"],
    "a replica of two": ["trainer.n_gpus_per_node=2", "actor_rollout_ref.rollout.tensor_model_parallel_size=2"],
}


def run(folder, *more):
    return train(folder, *CROWDED, f"trainer.rollout_data_dir={folder}/rollouts", *more), dumped(folder / "rollouts")


@pytest.fixture(scope="module")
def synchronous(tmp_path_factory, installed_fakes):
    return run(tmp_path_factory.mktemp("sync"), FROZEN)[1]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_response_that_is_cut_and_goes_on_is_the_one_that_is_not_cut(
    layout, synchronous, tmp_path, installed_fakes, monkeypatch
):
    hold_until_cut(monkeypatch, row=3, after=20)
    # Without learning all versions have the same weights, so (seed, uid, position) decide every token.
    trained, rows = run(tmp_path, ASYNC, FROZEN, *LAYOUTS[layout])

    assert sum(step.get("rollout/cut", 0) for step in trained.metrics) > 0
    assert sorted(rows) == sorted(synchronous)
    assert len({uid for uid, _ in rows}) == 6 * 4


def test_versions_log_probs_and_staleness_of_what_was_cut(tmp_path, installed_fakes, monkeypatch):
    hold_until_cut(monkeypatch, row=3, after=20)
    trained, _ = run(tmp_path, ASYNC, "trainer.parity.max_logprob_gap=1e-6")

    steps = trained.metrics
    assert max(step["rollout/version_spans/max"] for step in steps) > 1
    assert max(step["rollout/staleness/max"] for step in steps) >= 2
    assert steps[0]["rollout/staleness/max"] == 0
    # Tokens of the current weights agree to rounding; those of older ones show how far the policy has moved.
    assert all(step["training/logprob_gap/max"] < 1e-6 for step in steps if "training/logprob_gap/max" in step)
    assert max(step["training/staleness_gap/max"] for step in steps if "training/staleness_gap/max" in step) > 1e-4


@pytest.mark.parametrize("strategy", ["drop", "wait"])
def test_nothing_is_older_than_the_threshold(strategy, synchronous, tmp_path, installed_fakes):
    # Two optimizer steps a batch.
    bound = ["trainer.v1.sampler.max_off_policy_threshold=2", f"trainer.v1.sampler.max_off_policy_strategy={strategy}"]
    trained, rows = run(tmp_path, ASYNC, *bound, "trainer.v1.colocate_async.num_warmup_batches=2")

    assert max(step["rollout/staleness/max"] for step in trained.metrics) <= 2
    assert sorted(uid for uid, _ in rows) == sorted(uid for uid, _ in synchronous)
    if strategy == "wait":
        assert [uid for uid, _ in rows] == [uid for uid, _ in synchronous]
        assert sum(step["rollout/too_old"] for step in trained.metrics) == 0


def test_no_room_for_old_tokens_is_the_synchronous_schedule(synchronous, tmp_path, installed_fakes):
    bound = ["trainer.v1.sampler.max_off_policy_threshold=0", "trainer.v1.sampler.max_off_policy_strategy=wait"]
    trained, rows = run(tmp_path, ASYNC, FROZEN, *bound)
    assert rows == synchronous
    assert {step["rollout/staleness/max"] for step in trained.metrics} == {0}


def test_a_resumed_run_neither_loses_a_prompt_nor_trains_one_twice(synchronous, tmp_path, installed_fakes):
    saved = ["trainer.save_freq=2", "trainer.resume_mode=auto", ASYNC, FROZEN]
    run(tmp_path, *saved)
    shutil.rmtree(tmp_path / "run" / "global_step_6")
    state = json.loads((tmp_path / "run" / "global_step_4" / "trainer_state.json").read_text())
    assert len(state["sampler"]["in_flight"]) == 4
    trained, rows = run(tmp_path, *saved)

    assert [step["step"] for step in trained.metrics] == [1, 2, 3, 4, 5, 6]
    assert sorted(rows) == sorted(synchronous)


@pytest.mark.parametrize("mode", ["sync", "colocate_async"])
@pytest.mark.parametrize("workers", [1, 2])
def test_lost_failed_and_malformed_responses_hold_nobody_up(
    mode, workers, tmp_path, installed_fakes, monkeypatch, caplog
):
    # B84: eight prompts; 5 never returns, 6 raises, 2 is malformed; deadline 2 s.
    misbehave(monkeypatch, hangs=5, raises=6, malformed=2)
    with caplog.at_level(logging.WARNING):
        trained = train(
            tmp_path,
            f"trainer.v1.trainer_mode={mode}",
            f"trainer.n_gpus_per_node={workers}",
            "algorithm.adv_estimator=gae",
            "actor_rollout_ref.rollout.n=1",
            "data.train_batch_size=8",
            "actor_rollout_ref.actor.ppo_mini_batch_size=8",
            "critic.ppo_mini_batch_size=8",
            "trainer.rollout_deadline_s=2",
            "trainer.max_failed_rollout_fraction=0.5",
            "trainer.total_training_steps=1",
        )

    (step,) = trained.metrics
    assert {name: step[f"rollout/{name}"] for name in ("failed", "lost", "errors", "malformed", "failed_groups")} == {
        "failed": 3,
        "lost": 1,
        "errors": 1,
        "malformed": 1,
        "failed_groups": 3,
    }
    assert 2 <= step["timing_s/gen"] < 30  # the lost one would take an hour
    named = " ".join(record.getMessage() for record in caplog.records)
    assert "prompt 0000000-000005: 1 of 1 responses are missing (lost: no response within 2" in named
    assert "prompt 0000000-000006: 1 of 1 responses are missing (error: RuntimeError: the environment broke)" in named
    assert "prompt 0000000-000002: 1 of 1 responses are missing (malformed: " in named
