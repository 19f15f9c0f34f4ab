"""Checkpoints written while training goes on."""

from __future__ import annotations

import tempfile
import threading
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from rl_backend_fsdp.engine import FSDPEngine
from rl_core.contracts.engine import EngineConfig, EngineRole, SaveState
from rl_core.errors import CheckpointError
from rl_core.single_controller.base.collective import SoloCollective, WorkerContext
from rl_testing.contracts import engine_calls as calls
from rl_testing.contracts.engine_batch import as_batch, make_rows, num_tokens
from rl_testing.contracts.engine_losses import PolicyLoss
from rl_testing.contracts.engine_suite import ADAM
from rl_testing.contracts.processes import ProcessRanks
from rl_testing.contracts.ranks import run_on_all
from rl_testing.models import save_tiny_model
from torch.distributed.checkpoint.filesystem import FileSystemWriter

VOCAB = 33
ROWS = make_rows(VOCAB)
BATCH = as_batch(ROWS)
LOSS = PolicyLoss(num_tokens(ROWS))

_folder = tempfile.TemporaryDirectory(prefix="tiny-model-")
MODEL = SimpleNamespace(path=str(save_tiny_model(_folder.name, vocab_size=VOCAB, with_tokenizer=False)))


@pytest.fixture
def start():
    built = []

    def start():
        built.append(
            FSDPEngine(
                EngineRole.POLICY,
                MODEL,
                EngineConfig(optim=ADAM, micro_batch_size=2),
                WorkerContext(0, 1, 0, 1, "cpu", SoloCollective()),
            )
        )
        built[-1].initialize()
        return built[-1]

    yield start
    for engine in built:
        engine.close()


@pytest.fixture
def gate(monkeypatch):
    """Nothing is written before ``gate.set()``."""
    gate, write = threading.Event(), FileSystemWriter.write_data

    def waiting(self, plan, planner):
        assert gate.wait(60)
        return write(self, plan, planner)

    monkeypatch.setattr(FileSystemWriter, "write_data", waiting)
    yield gate
    gate.set()


def train(engine, steps=1):
    results = []
    for _ in range(steps):
        engine.forward_backward(BATCH, LOSS)
        results.append((engine.optimizer_step(), engine.lr_scheduler_step()))
    return results


def bits(engine):
    return {part.name: part.tensor.clone() for bucket in engine.named_weights(1 << 20) for part in bucket.slices}


def assert_same_bits(found, expected):
    assert [name for name, tensor in expected.items() if not torch.equal(found[name], tensor)] == []


def test_what_is_written_is_the_state_at_the_start_and_training_goes_on_meanwhile(start, gate, tmp_path):
    engine = start()
    train(engine)
    then = bits(engine)
    engine.start_save(tmp_path)
    assert engine.poll_save() is SaveState.WRITING
    expected = train(engine, 2)
    gate.set()
    engine.finish_save()
    assert engine.poll_save() is SaveState.WRITTEN
    resumed = start()
    resumed.load(tmp_path)
    assert_same_bits(bits(resumed), then)
    assert train(resumed, 2) == expected


def test_it_is_a_checkpoint_only_when_it_is_finished(start, gate, tmp_path):
    engine = start()
    engine.start_save(tmp_path)
    gate.set()
    engine._writing.wait()
    assert engine.poll_save() is SaveState.WRITTEN
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        start().load(tmp_path)
    engine.finish_save()
    start().load(tmp_path)


@pytest.mark.parametrize("again", ["start_save", "save", "load"])
def test_the_next_save_and_a_load_wait_for_it(start, gate, tmp_path, again):
    engine = start()
    engine.start_save(tmp_path / "first")
    threading.Timer(0.0, gate.set).start()
    getattr(engine, again)(tmp_path / ("first" if again == "load" else "second"))
    assert (tmp_path / "first/tensors/.metadata").is_file()
    engine.finish_save()
    start().load(tmp_path / "first")


def test_a_failure_waits_for_the_next_call_and_names_the_file(start, monkeypatch, tmp_path):
    def full(self, plan, planner):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FileSystemWriter, "write_data", full)
    engine = start()
    engine.start_save(tmp_path)
    engine._writing.wait()
    assert engine.poll_save() is SaveState.FAILED
    with pytest.raises(CheckpointError, match=r"rank 0: .*tensors/__0_0.distcp: OSError: .*No space left"):
        engine.finish_save()
    assert engine.poll_save() is SaveState.WRITTEN
    engine.finish_save()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_whatever_goes_wrong_in_the_thread_is_raised(start, monkeypatch, tmp_path):
    def broken(self, plan, planner):
        raise ZeroDivisionError("what nobody expected")

    monkeypatch.setattr(FileSystemWriter, "write_data", broken)
    engine = start()
    engine.start_save(tmp_path)
    with pytest.raises(CheckpointError, match="ZeroDivisionError: what nobody expected"):
        engine.finish_save()


@pytest.fixture
def two():
    build = partial(FSDPEngine, EngineRole.POLICY, MODEL, EngineConfig(optim=ADAM, micro_batch_size=2))
    groups = []

    def start():
        groups.append(ProcessRanks(2, build, dispose=calls.close))
        run_on_all(groups[-1], calls.initialize)
        return groups[-1]

    yield start
    for group in groups:
        group.close()


def ask(group, call, **arguments):
    return run_on_all(group, partial(call, **arguments))


@pytest.mark.heavy
def test_two_ranks_go_on_from_it_as_they_did(two, tmp_path):
    group = two()
    ask(group, calls.train, batches=[BATCH], loss_fn=LOSS)
    ask(group, calls.start_save, directory=tmp_path)
    expected = ask(group, calls.train, batches=[BATCH] * 2, loss_fn=LOSS)
    ask(group, calls.finish_save)
    resumed = two()
    ask(resumed, calls.load, directory=tmp_path)
    assert ask(resumed, calls.train, batches=[BATCH] * 2, loss_fn=LOSS) == expected


@pytest.mark.heavy
def test_one_rank_that_cannot_write_fails_on_both(two, tmp_path):
    group = two()
    (tmp_path / "tensors/__1_0.distcp").mkdir(parents=True)
    ask(group, calls.start_save, directory=tmp_path)
    for outcome in group.outcomes(calls.finish_save):
        assert isinstance(outcome, CheckpointError)
        assert "rank 1: " in str(outcome)
        assert "__1_0.distcp" in str(outcome)
    assert not (tmp_path / "tensors/.metadata").exists()
