"""Two worker processes, each stage of ZeRO: the steps of an unsharded FSDP2 engine, whatever cut the work."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rl_backend_deepspeed.config import DeepSpeedConfig
from rl_backend_deepspeed.engine import DeepSpeedEngine
from rl_backend_fsdp.engine import FSDPEngine
from rl_core.contracts.engine import EngineConfig, EngineRole
from rl_testing.contracts import engine_calls as calls
from rl_testing.contracts.engine_batch import as_batch, make_rows, num_tokens
from rl_testing.contracts.engine_losses import PolicyLoss
from rl_testing.contracts.engine_suite import ADAM, SGD
from rl_testing.contracts.processes import ProcessRanks
from rl_testing.contracts.ranks import ThreadRanks, run_on_all
from rl_testing.models import save_tiny_model
from safetensors.torch import load_file

VOCAB = 64
ROWS = make_rows(VOCAB)
BATCH = as_batch(ROWS)
LOSS = PolicyLoss(num_tokens(ROWS))
CLIPPED = {"optim": replace(ADAM, lr_scheduler_type="linear", lr_warmup_steps=1), "grad_clip": 0.05}

_folder = tempfile.TemporaryDirectory(prefix="tiny-model-")
PATH = str(save_tiny_model(_folder.name, vocab_size=VOCAB, tie_word_embeddings=True, with_tokenizer=False))
"""Hidden size 64, two layers, tied embeddings."""

CUTS: list[dict[str, Any]] = [
    {"micro_batch_size": 1},
    {"max_tokens": 9, "model": {"use_remove_padding": False, "enable_gradient_checkpointing": True}},
]

pytestmark = pytest.mark.heavy


def start_ranks(world_size, engine, *, stage=2, role=EngineRole.POLICY, model=None, **config):
    section = SimpleNamespace(path=PATH, **(model or {}))
    if engine is DeepSpeedEngine:
        config.setdefault("plugin", DeepSpeedConfig(zero_stage=stage, reduce_bucket_size=5000))
    kind = ThreadRanks if world_size == 1 else ProcessRanks
    settings = EngineConfig(**({"optim": SGD, "total_training_steps": 6} | config))
    group = kind(world_size, partial(engine, role, section, settings), dispose=calls.close)
    run_on_all(group, calls.initialize)
    return group


@pytest.fixture
def ranks():
    """``ranks(world_size, ...)``: initialized engines, closed after the test."""
    opened = []

    def start(world_size, **settings):
        opened.append(start_ranks(world_size, DeepSpeedEngine, **settings))
        return opened[-1]

    yield start
    for group in opened:
        group.close()


def ask(group, call, **arguments):
    return run_on_all(group, partial(call, **arguments))


def weights(group):
    return ask(group, calls.stream)[0].weights


def train(group, steps):
    return ask(group, calls.train, batches=[BATCH] * steps, loss_fn=LOSS)


def close_to(found, expected, rtol=1e-4, atol=1e-6):
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=rtol, atol=atol, msg=lambda t, n=name: f"{n}: {t}")


@pytest.fixture(scope="module")
def fsdp(tmp_path_factory):
    """Norms, weights and export of one FSDP2 worker with everything in one packed pass, by settings."""
    found = {}
    for name, settings in (("plain", {}), ("clipped", CLIPPED)):
        group = start_ranks(1, FSDPEngine, **settings)
        (steps,) = train(group, 3)
        export = tmp_path_factory.mktemp(name)
        ask(group, calls.export, directory=export)
        found[name] = SimpleNamespace(
            steps=steps, weights=weights(group), export=load_file(export / "model.safetensors")
        )
        group.close()
    return found


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("cut", CUTS)
def test_every_stage_takes_the_steps_of_fsdp2(ranks, fsdp, stage, cut, tmp_path):
    for name, settings in (("plain", {}), ("clipped", CLIPPED)):
        group = ranks(2, stage=stage, **cut, **settings)
        by_rank = train(group, 3)
        for number, expected in enumerate(fsdp[name].steps):
            here = [steps[number].result for steps in by_rank]
            assert set(here) == {here[0]}
            assert here[0].grad_norm == pytest.approx(expected.result.grad_norm, rel=1e-4)
            assert here[0].learning_rate == expected.result.learning_rate
        # Adam turns rounding of numbers near 0 into whole steps, so its weights are compared more loosely.
        close_to(weights(group), fsdp[name].weights, atol=1e-6 if name == "plain" else 1e-4)
        ask(group, calls.export, directory=tmp_path / name)
        close_to(load_file(tmp_path / name / "model.safetensors"), fsdp[name].export, atol=1e-4)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_an_untouched_model_streams_and_exports_the_bits_of_fsdp2(ranks, stage, tmp_path):
    plain = start_ranks(1, FSDPEngine)
    expected = weights(plain)
    ask(plain, calls.export, directory=tmp_path / "fsdp")
    plain.close()
    group = ranks(2, stage=stage)
    found = weights(group)
    assert list(found) == list(expected)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    ask(group, calls.export, directory=tmp_path / "ours")
    for file in sorted(path.name for path in (tmp_path / "fsdp").iterdir()):
        assert (tmp_path / "ours" / file).read_bytes() == (tmp_path / "fsdp" / file).read_bytes(), file


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_three_steps_a_checkpoint_and_three_more_are_six_steps(ranks, stage, tmp_path):
    options = CLIPPED | {"micro_batch_size": 2, "stage": stage}
    straight = ranks(2, **options)
    expected = train(straight, 3)
    ask(straight, calls.save, directory=tmp_path)
    expected = train(straight, 3)
    resumed = ranks(2, **options)
    ask(resumed, calls.load, directory=tmp_path)
    assert train(resumed, 3) == expected
    found, straight_weights = weights(resumed), weights(straight)
    assert all(torch.equal(found[name], straight_weights[name]) for name in found)


def test_a_checkpoint_moves_between_ranks_and_stages(ranks, tmp_path):
    """Equal weights bit for bit, and an optimizer that goes on as it would have."""
    for (saving, stage), (loading, other) in (((2, 3), (1, 2)), ((1, 2), (2, 3)), ((2, 1), (2, 3))):
        saved = ranks(saving, stage=stage, optim=ADAM)
        train(saved, 2)
        directory = tmp_path / f"{saving}_{stage}"
        ask(saved, calls.save, directory=directory)
        loaded = ranks(loading, stage=other, optim=ADAM)
        ask(loaded, calls.load, directory=directory)
        found, expected = weights(loaded), weights(saved)
        assert all(torch.equal(found[name], expected[name]) for name in expected)
        close_to(
            {"norm": torch.tensor(train(loaded, 1)[0][0].result.grad_norm)},
            {"norm": torch.tensor(train(saved, 1)[0][0].result.grad_norm)},
        )
        close_to(weights(loaded), weights(saved), atol=1e-4)


def test_a_damaged_checkpoint_is_refused_on_every_rank(ranks, tmp_path):
    group = ranks(2, stage=3)
    ask(group, calls.save, directory=tmp_path)
    before = weights(group)
    # Only the last rank misses something: the others must not go on without it.
    (tmp_path / "random_1.pt").unlink()
    for outcome in group.outcomes(partial(calls.load, directory=tmp_path)):
        assert type(outcome).__name__ == "CheckpointError"
        assert "rank 1" in str(outcome)
    after = weights(group)
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_an_export_that_cannot_be_written_fails_on_every_rank(ranks, tmp_path):
    (tmp_path / "file").write_text("")
    group = ranks(2, stage=3)
    for outcome in group.outcomes(partial(calls.export, directory=Path(tmp_path, "file", "export"))):
        assert type(outcome).__name__ == "CheckpointError"
    assert weights(group)


@pytest.mark.parametrize("stage", [2, 3])
def test_a_frozen_role_is_whole_or_cut_and_scores_the_same(ranks, stage):
    group = ranks(2, stage=stage, role=EngineRole.REFERENCE, optim=None)
    plain = start_ranks(1, FSDPEngine, role=EngineRole.REFERENCE, optim=None)
    arguments = {"batch": BATCH, "outputs": frozenset({"log_probs", "entropy"})}
    expected = calls.collected(ask(plain, calls.forward, **arguments))
    found = calls.collected(ask(group, calls.forward, **arguments))
    plain.close()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("stage", [2, 3])
def test_bfloat16_computes_over_float32_weights(ranks, stage):
    """Steps below bfloat16's resolution add up, which they would not in weights of that format."""
    plugin = DeepSpeedConfig(zero_stage=stage, dtype="bf16", reduce_bucket_size=5000)
    group = ranks(2, plugin=plugin, optim=replace(SGD, lr=1e-4))
    ranks_one = ranks(2, plugin=plugin, optim=replace(SGD, lr=0.0))
    train(group, 20)
    train(ranks_one, 1)
    moved, still = weights(group), weights(ranks_one)
    assert {tensor.dtype for tensor in moved.values()} == {torch.bfloat16}
    assert any(not torch.equal(moved[name], still[name]) for name in moved)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_adapters_take_the_steps_of_fsdp2(ranks, stage):
    model = {"lora_rank": 4, "lora_alpha": 8}
    plain = start_ranks(1, FSDPEngine, model=model)
    expected = train(plain, 3)[0]
    expected_weights = weights(plain)
    plain.close()
    group = ranks(2, stage=stage, model=model, micro_batch_size=2)
    for found, wanted in zip(train(group, 3)[0], expected, strict=True):
        assert found.result.grad_norm == pytest.approx(wanted.result.grad_norm, rel=1e-4)
    close_to(weights(group), expected_weights)
