"""Low-rank adapters over several worker processes: the same numbers as one worker, and checkpoints that move between them."""

from __future__ import annotations

import tempfile
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
from safetensors.torch import load_file

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

CUTS: list[dict[str, Any]] = [
    {},
    {"micro_batch_size": 1, "model": {"enable_gradient_checkpointing": True}},
    {"micro_batch_size": 2, "plugin": FSDPConfig(use_no_sync_for_gradient_accumulation=True)},
]


@pytest.fixture
def ranks():
    """``ranks(world_size, ...)``: initialized engines with adapters of rank 3, closed after the test."""
    opened = []

    def start(world_size, *, model=None, export="merged", **config):
        further = SimpleNamespace(type="lora", export=export, dropout=0.0)
        section = SimpleNamespace(
            **({"path": PATH, "lora_rank": 3, "lora_alpha": 6.0, "lora": further} | (model or {}))
        )
        build = partial(FSDPEngine, EngineRole.POLICY, section, EngineConfig(**({"optim": SGD} | config)))
        kind = ThreadRanks if world_size == 1 else ProcessRanks
        opened.append(kind(world_size, build, dispose=calls.close))
        run_on_all(opened[-1], calls.initialize)
        return opened[-1]

    yield start
    for group in opened:
        group.close()


def adapter(engine):
    """The adapter stream, and what a checkpoint would hold: names on this rank."""
    found = {
        part.name: part.tensor.clone() for bucket in engine.named_weights(4096, "adapter") for part in bucket.slices
    }
    assert list(found) == [spec.name for spec in engine.weight_manifest("adapter").sent]
    assert set(found) == set(engine.streams.kept_tensors())
    return found


def adapter_state_bytes(engine):
    """Bytes of optimizer state on this rank, and of the trained matrices there."""
    state = [engine.local(value) for values in engine.optimizer.state.values() for value in values.values()]
    return sum(value.nbytes for value in state if value.ndim), sum(engine.local(p).nbytes for p in engine.parameters())


def ask(group, call, **arguments):
    return run_on_all(group, partial(call, **arguments))


def train(group, steps):
    return ask(group, calls.train, batches=[BATCH] * steps, loss_fn=LOSS)


def scores(group, call=calls.forward):
    return calls.collected(ask(group, call, batch=BATCH, outputs=frozenset({"log_probs"})))["log_probs"]


def assert_close(found, expected, rtol=1e-5, atol=1e-6):
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=rtol, atol=atol, msg=lambda t, n=name: f"{n}: {t}")


def same_bits(found, expected):
    return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize("cut", CUTS)
def test_the_same_update_as_one_worker(ranks, world_size, cut):
    """Gradient norms, adapters, merged weights, log-probs with and without adapters."""
    one, group = ranks(1), ranks(world_size, **cut)
    base = scores(group)
    (expected,) = train(one, 3)
    for step, other in zip(train(group, 3)[0], expected, strict=True):
        assert step.result.grad_norm == pytest.approx(other.result.grad_norm, rel=1e-5)
    assert_close(ask(group, adapter)[0], ask(one, adapter)[0])
    assert_close(ask(group, calls.stream)[0].weights, ask(one, calls.stream)[0].weights)
    torch.testing.assert_close(scores(group), scores(one), rtol=1e-5, atol=1e-5)
    without = scores(group, calls.forward_without_adapter)
    assert all(torch.equal(row, other) for row, other in zip(without, base, strict=True))


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_a_frozen_base_in_half_precision(ranks, world_size):
    """The base is in the format of the computation, adapters in float32, and both meet in one sharded block."""
    group = ranks(world_size, plugin=FSDPConfig(dtype="bf16"), optim=ADAM)
    base, before = scores(group, calls.forward_without_adapter), ask(group, adapter)[0]
    losses = [step.metrics["loss"].value for step in train(group, 4)[0]]
    after = ask(group, adapter)[0]
    assert {tensor.dtype for tensor in after.values()} == {torch.float32}
    assert all(not torch.equal(after[name], before[name]) for name in after)
    assert len(set(losses)) == 4
    without = scores(group, calls.forward_without_adapter)
    assert all(torch.equal(row, other) for row, other in zip(without, base, strict=True))


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_optimizer_state_is_sharded_with_the_adapters(ranks, world_size):
    group = ranks(world_size, optim=ADAM)
    train(group, 1)
    sizes = ask(group, adapter_state_bytes)
    assert all(state == 2 * trained for state, trained in sizes)
    whole = sum(tensor.nbytes for tensor in ask(group, adapter)[0].values())
    assert sum(trained for _, trained in sizes) == whole


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_a_checkpoint_resumes_exactly_and_moves_between_world_sizes(ranks, world_size, tmp_path):
    options = {"optim": ADAM, "total_training_steps": 4, "micro_batch_size": 2}
    straight, first = ranks(world_size, **options), ranks(world_size, **options)
    expected = train(straight, 4)
    train(first, 2)
    ask(first, calls.save, directory=tmp_path)
    resumed = ranks(world_size, **options)
    ask(resumed, calls.load, directory=tmp_path)
    saved = ask(resumed, adapter)[0]
    assert train(resumed, 2) == [steps[2:] for steps in expected]
    assert same_bits(ask(resumed, calls.stream)[0].weights, ask(straight, calls.stream)[0].weights)
    alone = ranks(1, **options)
    ask(alone, calls.load, directory=tmp_path)
    assert same_bits(ask(alone, adapter)[0], saved)
    (steps,) = train(alone, 1)
    assert steps[0].result.grad_norm == pytest.approx(expected[0][2].result.grad_norm, rel=1e-5)


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_an_adapter_is_exported_whole(ranks, world_size, tmp_path):
    group = ranks(world_size, export="adapter")
    train(group, 2)
    ask(group, calls.export, directory=tmp_path / "export")
    assert same_bits(load_file(tmp_path / "export" / "adapter_model.safetensors"), ask(group, adapter)[0])
    (tmp_path / "file").write_text("")
    for outcome in group.outcomes(partial(calls.export, directory=Path(tmp_path, "file", "export"))):
        assert type(outcome).__name__ == "CheckpointError"
