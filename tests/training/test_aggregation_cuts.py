"""An update through the real engine: every aggregation, and every loss that looks beyond a token, however work is cut."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from actor_updates import actor_config, make_batch, planned, update, with_old_log_probs
from rl_backend_fsdp.engine import FSDPEngine
from rl_core.config.optim import OptimConfig
from rl_core.contracts.engine import EngineConfig, EngineRole
from rl_core.metrics import merge_metrics, metric_values
from rl_testing.contracts import engine_calls as calls
from rl_testing.contracts.processes import ProcessRanks
from rl_testing.contracts.ranks import ThreadRanks, run_on_all
from rl_testing.models import save_tiny_model
from tiny_runs import train

pytestmark = pytest.mark.heavy

VOCAB = 64
SGD = OptimConfig(optimizer="SGD", lr=0.005, weight_decay=0.0)
BY_RESPONSE = "seq-mean-token-mean"
UPDATES = [
    ("vanilla", "token-mean"),
    ("vanilla", "token-sum"),
    ("vanilla", "seq-mean-token-sum"),
    ("vanilla", "seq-mean-token-sum-norm"),
    ("vanilla", BY_RESPONSE),
    ("gspo", BY_RESPONSE),
    ("geo_mean", BY_RESPONSE),
    ("clip_cov", "token-mean"),
    ("kl_cov", "token-mean"),
]
CUTS = {"one row a pass": {"micro_batch_size": 1}, "three rows": {"micro_batch_size": 3}, "packed": {"max_tokens": 20}}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(save_tiny_model(tmp_path_factory.mktemp("tiny"), vocab_size=VOCAB, with_tokenizer=False))


@pytest.fixture(scope="module")
def engines(model):
    """``engines(world_size, **config)``: initialized, and closed with the module."""
    opened = []

    def start(world_size, **config):
        kind = ThreadRanks if world_size == 1 else ProcessRanks
        build = partial(FSDPEngine, EngineRole.POLICY, SimpleNamespace(path=model), EngineConfig(optim=SGD, **config))
        opened.append(kind(world_size, build, dispose=calls.close))
        run_on_all(opened[-1], calls.initialize)
        return opened[-1]

    yield start
    for group in opened:
        group.close()


@pytest.fixture(scope="module")
def start_of(engines, tmp_path_factory):
    """Everything in one pass of one worker, its weights at the start, and the batch."""
    group = engines(1)
    folder = tmp_path_factory.mktemp("start")
    run_on_all(group, partial(calls.save, directory=folder))
    batch = make_batch(VOCAB)
    asked = partial(calls.forward, batch=batch, outputs=frozenset({"log_probs"}))
    log_probs = calls.collected(run_on_all(group, asked))["log_probs"]
    return SimpleNamespace(group=group, folder=folder, batch=with_old_log_probs(batch, log_probs))


def updated(group, start, loss_mode, loss_agg_mode):
    """Metrics and weights after one update from the start."""
    run_on_all(group, partial(calls.load, directory=start.folder))
    actor = actor_config(loss_mode, loss_agg_mode)
    reports = run_on_all(group, partial(update, batch=planned(start.batch, actor), actor=actor))
    metrics = metric_values(merge_metrics([report for report in reports if report is not None]))
    return metrics, run_on_all(group, calls.stream)[0].weights


@pytest.fixture(scope="module")
def expected(start_of):
    return {names: updated(start_of.group, start_of, *names) for names in UPDATES}


def test_the_updates_are_worth_comparing(expected):
    for (loss, mode), (metrics, _) in expected.items():
        assert metrics["actor/optimizer_steps"] == 4, (loss, mode)
        assert metrics["actor/grad_norm"] > 1e-3, (loss, mode)
    clipped = {loss: metrics for (loss, _), (metrics, _) in expected.items()}
    assert all(clipped[loss]["actor/pg_clipfrac"] > 0 for loss in ("vanilla", "gspo", "geo_mean", "clip_cov"))
    assert clipped["kl_cov"]["actor/kl_cov_frac"] > 0
    norms = {round(metrics["actor/grad_norm"], 6) for metrics, _ in expected.values()}
    assert len(norms) == len(UPDATES), "two updates that are the same would prove one"


@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize("cut", CUTS)
def test_the_same_update_however_it_is_cut(world_size, cut, engines, start_of, expected):
    group = engines(world_size, **CUTS[cut])
    for names, (metrics, weights) in expected.items():
        found, found_weights = updated(group, start_of, *names)
        assert found.keys() == metrics.keys()
        for key, value in metrics.items():
            assert found[key] == pytest.approx(value, rel=1e-5, abs=1e-6), (names, key)
        for name, tensor in weights.items():
            torch.testing.assert_close(
                found_weights[name], tensor, rtol=1e-5, atol=1e-6, msg=lambda text, n=name, u=names: f"{u} {n}: {text}"
            )


@pytest.mark.parametrize("loss", ["clip_cov", "kl_cov"])
def test_a_run_chooses_its_tokens_before_anything_is_cut(loss, tmp_path):
    """Through the trainer: what the controller prepared reaches the loss, and micro-batches change no number of a step."""
    model = save_tiny_model(tmp_path / "model")
    keys = [
        f"actor_rollout_ref.actor.{key}"
        for key in (
            f"policy_loss.loss_mode={loss}",
            f"policy_loss.{loss}_ratio=0.2",
            "ppo_mini_batch_size=4",
            "optim.optimizer=SGD",
            "optim.lr=0.1",
        )
    ]
    keys += ["trainer.total_training_steps=2"]
    if loss == "clip_cov":
        keys += [f"actor_rollout_ref.actor.policy_loss.clip_cov_{bound}" for bound in ("lb=-9", "ub=9")]
    whole = train(model, tmp_path / "packed", *keys)
    cut = train(model, tmp_path / "cut", *keys, "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2")
    chosen = "actor/pg_clipfrac" if loss == "clip_cov" else "actor/kl_cov_frac"
    for ours, theirs in zip(cut, whole, strict=True):
        # The metric is the mean over two mini-batches of a choice over both.
        assert 0.15 < theirs[chosen] < 0.25
        for key in theirs:
            if key.startswith("actor/"):
                assert ours[key] == pytest.approx(theirs[key], rel=1e-5, abs=1e-6), key
