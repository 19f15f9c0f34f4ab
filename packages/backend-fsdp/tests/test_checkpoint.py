"""Checkpoints of one worker: exact, complete or refused."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rl_backend_fsdp.engine import FSDPEngine
from rl_core.contracts.engine import EngineConfig, EngineRole, EngineState
from rl_core.errors import CheckpointError, RlError
from rl_core.single_controller.base.collective import SoloCollective, WorkerContext
from rl_testing.contracts.engine_batch import as_batch, make_rows, num_tokens
from rl_testing.contracts.engine_losses import PolicyLoss, ValueLoss
from rl_testing.contracts.engine_suite import ADAM
from rl_testing.models import save_tiny_model

VOCAB = 33
ROWS = make_rows(VOCAB)
BATCH = as_batch(ROWS)
CONTEXT = WorkerContext(0, 1, 0, 1, "cpu", SoloCollective())
OPTIM = replace(ADAM, lr_scheduler_type="cosine", lr_warmup_steps=1)

_folder = tempfile.TemporaryDirectory(prefix="tiny-model-")
MODEL = SimpleNamespace(
    path=str(save_tiny_model(_folder.name, model_type="gpt2", vocab_size=VOCAB, hidden_size=16, with_tokenizer=False)),
    override_config={"resid_pdrop": 0.1},
)
"""With dropout, so that the random state counts."""


@pytest.fixture
def start():
    built = []

    def start(role=EngineRole.POLICY, optim=OPTIM):
        config = EngineConfig(optim=optim, total_training_steps=6, micro_batch_size=2)
        built.append(FSDPEngine(role, MODEL, config, CONTEXT))
        built[-1].initialize()
        return built[-1]

    yield start
    for engine in built:
        engine.close()


def train(engine, steps):
    loss = ValueLoss if engine.role is EngineRole.VALUE else PolicyLoss
    told = []
    for _ in range(steps):
        metrics = engine.forward_backward(BATCH, loss(num_tokens(ROWS)))
        told.append((metrics["loss"].value, engine.optimizer_step(), engine.lr_scheduler_step()))
    return told


def bits(engine):
    return {part.name: part.tensor.clone() for bucket in engine.named_weights(1 << 20) for part in bucket.slices}


def assert_same_bits(found, expected):
    assert [name for name, tensor in expected.items() if not torch.equal(found[name], tensor)] == []


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A checkpoint after three steps. Copy it before changing it."""
    directory = tmp_path_factory.mktemp("checkpoint") / "actor"
    engine = FSDPEngine(
        EngineRole.POLICY, MODEL, EngineConfig(optim=OPTIM, total_training_steps=6, micro_batch_size=2), CONTEXT
    )
    engine.initialize()
    train(engine, 3)
    engine.save(directory)
    engine.close()
    return directory


@pytest.mark.parametrize("role", [EngineRole.POLICY, EngineRole.VALUE])
def test_three_steps_a_checkpoint_and_three_more_are_six_steps(start, tmp_path, role):
    straight = start(role)
    expected = train(straight, 6)
    first = start(role)
    assert train(first, 3) == expected[:3]
    first.save(tmp_path)
    resumed = start(role)
    train(resumed, 1)
    resumed.load(tmp_path)
    assert train(resumed, 3) == expected[3:]
    assert_same_bits(bits(resumed), bits(straight))


def test_saving_changes_nothing(start, tmp_path):
    watched, plain = start(), start()
    for engine in (watched, plain):
        train(engine, 2)
    watched.save(tmp_path)
    assert train(watched, 1) == train(plain, 1)
    assert_same_bits(bits(watched), bits(plain))


def test_a_frozen_engine_has_only_weights(start, tmp_path):
    first = start(EngineRole.REFERENCE, optim=None)
    first.save(tmp_path)
    second = start(EngineRole.REFERENCE, optim=None)
    second.load(tmp_path)
    assert_same_bits(bits(second), bits(first))


def test_accumulated_gradients_go_when_a_checkpoint_is_loaded(start, saved):
    engine = start()
    engine.forward_backward(BATCH, PolicyLoss(num_tokens(ROWS)))
    engine.load(saved)
    assert engine.optimizer_step().grad_norm == 0.0


def damage_missing_file(directory: Path) -> None:
    next((directory / "tensors").glob("*.distcp")).unlink()


def damage_short_file(directory: Path) -> None:
    file = next((directory / "tensors").glob("*.distcp"))
    file.write_bytes(file.read_bytes()[:-100])


def damage_metadata(directory: Path) -> None:
    (directory / "tensors" / ".metadata").write_bytes(b"no pickle")


def damage_no_metadata(directory: Path) -> None:
    (directory / "tensors" / ".metadata").unlink()


def damage_no_record(directory: Path) -> None:
    (directory / "engine.json").unlink()


def damage_no_random_state(directory: Path) -> None:
    (directory / "random_0.pt").unlink()


@pytest.mark.parametrize(
    "damage",
    [
        damage_missing_file,
        damage_short_file,
        damage_metadata,
        damage_no_metadata,
        damage_no_record,
        damage_no_random_state,
    ],
)
def test_a_damaged_checkpoint_is_refused_and_changes_nothing(start, saved, tmp_path, damage):
    copy = tmp_path / "copy"
    shutil.copytree(saved, copy)
    damage(copy)
    engine = start()
    before = bits(engine)
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        engine.load(copy)
    assert_same_bits(bits(engine), before)
    assert engine.schedule_step == 0


def test_another_role_is_refused(start, saved):
    with pytest.raises(CheckpointError, match="holds a policy model"):
        start(EngineRole.VALUE).load(saved)


def test_what_is_offloaded_is_not_saved(start, tmp_path):
    engine = start()
    engine.offload({EngineState.OPTIMIZER})
    with pytest.raises(RlError, match="save needs optimizer on the device"):
        engine.save(tmp_path)


def test_a_full_disk_is_an_error_of_ours(start, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="could not be written: rank 0"):
        start().save(tmp_path / "file" / "actor")


def test_an_optimizer_that_keeps_other_things_than_tensors_cannot_be_saved(start, tmp_path):
    engine = start()
    train(engine, 1)
    engine.optimizer.state[engine.parameters()[0]]["note"] = "text"
    with pytest.raises(CheckpointError, match="keeps 'note' as a str"):
        engine.save(tmp_path)
