"""Several worker processes: the same numbers as one, whatever cut the work."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rl_backend_fsdp.config import FSDPConfig
from rl_backend_fsdp.engine import FSDPEngine
from rl_core.contracts.engine import EngineConfig, EngineRole
from rl_testing.contracts import engine_calls as calls
from rl_testing.contracts.engine_batch import as_batch, make_rows, num_tokens
from rl_testing.contracts.engine_losses import PolicyLoss
from rl_testing.contracts.engine_suite import ADAM, SGD
from rl_testing.contracts.processes import ProcessRanks
from rl_testing.contracts.ranks import ThreadRanks, run_on_all
from rl_testing.models import save_tiny_model
from transformers import AutoModelForCausalLM

VOCAB = 64
ROWS = make_rows(VOCAB)
BATCH = as_batch(ROWS)
LOSS = PolicyLoss(num_tokens(ROWS))
WORLD_SIZES = [
    pytest.param(2, marks=pytest.mark.heavy),
    pytest.param(4, marks=pytest.mark.slow),
]

_folder = tempfile.TemporaryDirectory(prefix="tiny-model-")
PATH = str(save_tiny_model(_folder.name, vocab_size=VOCAB, tie_word_embeddings=True, with_tokenizer=False))
"""Hidden size 64, two layers, tied embeddings."""

CUTS: list[dict[str, Any]] = [
    {},
    {"micro_batch_size": 1},
    {"micro_batch_size": 2, "plugin": FSDPConfig(use_no_sync_for_gradient_accumulation=True)},
    {"max_tokens": 9},
    {"micro_batch_size": 2, "model": {"use_remove_padding": False}},
    {"max_tokens": 16, "model": {"use_remove_padding": False}},
    {"micro_batch_size": 2, "model": {"enable_gradient_checkpointing": True}},
]


@pytest.fixture
def ranks():
    """``ranks(world_size, ...)``: initialized engines, closed after the test."""
    opened = []

    def start(world_size, *, role=EngineRole.POLICY, model=None, **config):
        section = SimpleNamespace(path=PATH, **(model or {}))
        group = start_ranks(world_size, partial(FSDPEngine, role, section, EngineConfig(**({"optim": SGD} | config))))
        opened.append(group)
        run_on_all(group, calls.initialize)
        return group

    yield start
    for group in opened:
        group.close()


def start_ranks(world_size, build):
    kind = ThreadRanks if world_size == 1 else ProcessRanks
    return kind(world_size, build, dispose=calls.close)


def ask(group, call, **arguments):
    return run_on_all(group, partial(call, **arguments))


def weights(group):
    return ask(group, calls.stream)[0].weights


def train(group, steps):
    return ask(group, calls.train, batches=[BATCH] * steps, loss_fn=LOSS)


def assert_close(found, expected):
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-5, atol=1e-6, msg=lambda t, n=name: f"{n}: {t}")


@pytest.fixture(scope="module")
def one():
    """Loss, norms, log-probs and weights of one worker with everything in one packed pass."""
    build = partial(FSDPEngine, EngineRole.POLICY, SimpleNamespace(path=PATH), EngineConfig(optim=SGD))
    group = start_ranks(1, build)
    run_on_all(group, calls.initialize)
    log_probs = calls.collected(ask(group, calls.forward, batch=BATCH, outputs=frozenset({"log_probs"})))["log_probs"]
    (steps,) = train(group, 3)
    result = SimpleNamespace(steps=steps, log_probs=log_probs, weights=weights(group))
    group.close()
    return result


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize("cut", CUTS)
def test_the_same_update_as_one_worker(ranks, one, world_size, cut):
    group = ranks(world_size, **cut)
    answers = ask(group, calls.forward, batch=BATCH, outputs=frozenset({"log_probs"}))
    torch.testing.assert_close(calls.collected(answers)["log_probs"], one.log_probs, rtol=1e-5, atol=1e-5)
    by_rank = train(group, 3)
    for number, expected in enumerate(one.steps):
        here = [steps[number] for steps in by_rank]
        assert {step.result for step in here} == {here[0].result}
        assert here[0].result.grad_norm == pytest.approx(expected.result.grad_norm, rel=1e-5)
        loss = calls.summed([step.metrics for step in here], "loss")
        assert loss == pytest.approx(expected.metrics["loss"].value, rel=1e-5)
    assert_close(weights(group), one.weights)


def same_bits(found, expected):
    return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_three_steps_a_checkpoint_and_three_more_are_six_steps(ranks, world_size, tmp_path):
    optim = replace(ADAM, lr_scheduler_type="linear", lr_warmup_steps=1)
    options = {"optim": optim, "total_training_steps": 6, "micro_batch_size": 2}
    straight = ranks(world_size, **options)
    expected = train(straight, 6)
    first = ranks(world_size, **options)
    train(first, 3)
    ask(first, calls.save, directory=tmp_path)
    resumed = ranks(world_size, **options)
    ask(resumed, calls.load, directory=tmp_path)
    assert train(resumed, 3) == [steps[3:] for steps in expected]
    assert same_bits(weights(resumed), weights(straight))


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_a_checkpoint_moves_between_world_sizes(ranks, world_size, tmp_path):
    """Equal weights bit for bit, and an optimizer that goes on as it would have."""
    for saving, loading in ((1, world_size), (world_size, 1)):
        saved = ranks(saving, optim=ADAM)
        train(saved, 2)
        directory = tmp_path / f"{saving}"
        ask(saved, calls.save, directory=directory)
        loaded = ranks(loading, optim=ADAM)
        ask(loaded, calls.load, directory=directory)
        assert same_bits(weights(loaded), weights(saved))
        expected, found = train(saved, 1)[0][0].result, train(loaded, 1)[0][0].result
        assert found.grad_norm == pytest.approx(expected.grad_norm, rel=1e-5)


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_a_damaged_checkpoint_is_refused_on_every_rank(ranks, world_size, tmp_path):
    group = ranks(world_size)
    ask(group, calls.save, directory=tmp_path)
    before = weights(group)
    # Only the last rank misses something: the others must not go on without it.
    (tmp_path / f"random_{world_size - 1}.pt").unlink()
    for outcome in group.outcomes(partial(calls.load, directory=tmp_path)):
        assert type(outcome).__name__ == "CheckpointError"
        assert f"rank {world_size - 1}" in str(outcome)
    assert same_bits(weights(group), before)


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_an_export_of_several_ranks_is_the_model(ranks, world_size, tmp_path):
    group = ranks(world_size)
    train(group, 1)
    ask(group, calls.export, directory=tmp_path)
    exported = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    streamed = weights(group)
    assert all(torch.equal(exported[name], tensor) for name, tensor in streamed.items())
    assert set(exported) - set(streamed) == {"lm_head.weight"}


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_an_export_that_cannot_be_written_fails_on_every_rank(ranks, world_size, tmp_path):
    (tmp_path / "file").write_text("")
    group = ranks(world_size)
    for outcome in group.outcomes(partial(calls.export, directory=Path(tmp_path, "file", "export"))):
        assert type(outcome).__name__ == "CheckpointError"
    assert weights(group)
