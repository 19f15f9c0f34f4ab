import json

import pytest

CONFIG = """\
trainer: {experiment_name: digits, project_name: lab, seed: 1, parity: {first_sync_tolerance: 0.1}}
algorithm: {adv_estimator: grpo}
actor_rollout_ref:
  model: {path: tiny}
  actor: {strategy: fake, optim: {lr: 0.03}}
  rollout: {name: fake, n: 8}
ray_kwargs: {env_vars: {TOKEN: <redacted>}}
"""
ENVIRONMENT = {
    "python": "3.11.7",
    "platform": "Linux",
    "packages": {"torch": "2.13.0"},
    "plugins": [{"name": "grpo", "dist": "rl-core", "version": "0.1.0", "kind": "advantage"}],
    "git": {"commit": "c0ffee", "modified": True},
    "command": ["rl", "train", "trainer.seed=1"],
}


def step_row(step, reward):
    """What a step of ``rl train`` logs, shortened."""
    return {
        "step": step,
        "training/total_steps": 3,
        "critic/score/mean": reward,
        "critic/rewards/mean": reward,
        "response_length/mean": 5.0,
        "response_length/min": 2.0,
        "response_length/max": 8.0,
        "actor/kl_loss": 0.01 * step,
        "actor/entropy": 1.0 / step,
        "actor/grad_norm": 0.5,
        "actor/lr": 0.03,
        "actor/skipped_steps": 0.0,
        "reward_extra/format/mean": 0.5 * (reward or 0.0),
        "training/logprob_gap/mean": 1e-7 * step,
        "training/logprob_gap/max": 1e-5 * step,
        "rollout/failed": float(step == 2),
        "reward/missing": 0.0,
        "timing_s/gen": 3.0,
        "timing_s/update_weights": 0.5,
        "timing_s/update_actor": 6.0,
        "timing_s/step": 10.0,
        "memory/actor_rollout_ref/generate_gib": 1.0 + step,
        "memory/actor_rollout_ref/update_actor_gib": 0.25,
        "perf/cpu_memory_used_gb": 1.5,
        "perf/throughput": 1000.0 * step,
    }


def sample_row(step, split, uid, response, score, **more):
    return {
        "step": step,
        "split": split,
        "uid": uid,
        "data_source": "digits",
        "prompt": f"what is {uid}?",
        "response": response,
        "num_tokens": 4,
        "finish_reason": "stop",
        "ground_truth": uid,
        "score": score,
        "components": {"format": 0.5},
        "error": None,
    } | more


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def folder(tmp_path):
    """A finished run of three steps with two validations."""
    return write_run(tmp_path / "run")


@pytest.fixture(scope="session")
def untouched(tmp_path_factory):
    """The same, for tests that only read it."""
    return write_run(tmp_path_factory.mktemp("untouched") / "run")


def write_run(run):
    run.mkdir()
    rows = [step_row(step, reward) for step, reward in ((1, 0.2), (2, 0.4), (3, 0.9))]
    rows[2] |= {"val-core/digits/acc/mean@1": 0.75, "val-aux/reward/missing": 0.0, "timing_s/testing": 0.5}
    write_lines(run / "metrics.jsonl", [{"step": 0, "val-core/digits/acc/mean@1": 0.25}, *rows])
    write_lines(
        run / "samples.jsonl",
        [
            sample_row(0, "val", "v1", "<b>no</b>", 0.0),
            sample_row(0, "val", "v2", "same", 1.0),
            sample_row(1, "train", "t1", "first try", 0.0),
            sample_row(1, "train", "t1", "second try", None, error="ValueError: no number"),
            sample_row(3, "train", "t2", "third try", 1.0),
            sample_row(3, "val", "v1", "yes", 1.0),
            sample_row(3, "val", "v2", "same", 1.0),
        ],
    )
    (run / "config.yaml").write_text(CONFIG)
    (run / "environment.json").write_text(json.dumps(ENVIRONMENT))
    (run / "global_step_3").mkdir()
    (run / "global_step_3" / "checkpoint.json").write_text("{}")
    (run / "global_step_2").mkdir()  # not complete
    return run


@pytest.fixture
def sft_folder(tmp_path):
    """A run of ``rl sft``: a loss, no reward, no samples."""
    run = tmp_path / "sft"
    run.mkdir()
    rows = [{"step": 0, "val/loss": 5.0, "val/perplexity": 148.4}]
    for step, loss in ((1, 5.0), (2, 2.0), (3, 1.0)):
        rows.append({"step": step, "train/loss": loss, "train/lr": 0.001, "timing_s/update": 1.0, "timing_s/step": 1.2})
        rows[-1] |= {"memory/sft/update_sft_gib": 0.5 * step, "perf/cpu_memory_used_gb": 1.5}
    rows[-1]["val/loss"] = 1.25
    write_lines(run / "metrics.jsonl", rows)
    (run / "config.yaml").write_text("trainer: {experiment_name: warm}\nmodel: {path: tiny}\n")
    return run


@pytest.fixture
def logged(tmp_path):
    """Makes a run folder with nothing but these rows."""

    def make(*rows):
        run = tmp_path / "logged"
        run.mkdir()
        write_lines(run / "metrics.jsonl", rows)
        return run

    return make


@pytest.fixture
def row():
    """``row(step, reward)``: what a step logs."""
    return step_row
