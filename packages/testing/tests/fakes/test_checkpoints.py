from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
from rl_core.contracts.engine import EngineConfig, EngineRole
from rl_core.errors import CheckpointError, RlError
from rl_core.single_controller.base.collective import SoloCollective, WorkerContext
from rl_testing.contracts import engine_calls as calls
from rl_testing.contracts.engine_batch import as_batch, make_rows
from rl_testing.contracts.engine_losses import PolicyLoss
from rl_testing.fakes.pipeline_engine import PipelineEngine
from rl_testing.fakes.plain_engine import PlainEngine
from safetensors.torch import load_file


def make(engine=PlainEngine, role=EngineRole.POLICY, tied=True):
    model = SimpleNamespace(override_config={"vocab_size": 13, "hidden_size": 4, "tie_word_embeddings": tied})
    config = EngineConfig(optim={"optimizer": "AdamW", "lr": 0.1})
    made = engine(role, model, config, WorkerContext(0, 1, 0, 1, "cpu", SoloCollective()))
    made.initialize()
    return made


def train(engine):
    calls.train(engine, batches=[as_batch(make_rows(13))], loss_fn=PolicyLoss(10))
    return calls.stream(engine).weights


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("saving", [PlainEngine, PipelineEngine])
def test_either_fake_goes_on_from_the_files_of_the_other(saving, tied, tmp_path):
    loading = PipelineEngine if saving is PlainEngine else PlainEngine
    saved = make(saving, tied=tied)
    train(saved)
    saved.save(tmp_path)
    loaded = make(loading, tied=tied)
    loaded.load(tmp_path)

    torch.testing.assert_close(train(loaded), train(saved), rtol=1e-10, atol=1e-12)


def test_a_broken_file_is_told(tmp_path):
    engine = make()
    engine.save(tmp_path)
    file = tmp_path / "tensors.pt"
    file.write_bytes(file.read_bytes()[:100])

    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        make().load(tmp_path)


def test_files_of_another_role_are_refused(tmp_path):
    make(role=EngineRole.VALUE).save(tmp_path)

    with pytest.raises(CheckpointError, match=r"holds a value model, this is a policy model.*\['score.weight'\]"):
        make().load(tmp_path)


def test_counters_come_back(tmp_path):
    engine = make()
    engine.schedule_step, engine.skipped_steps = 5, 2
    engine.save(tmp_path)
    loaded = make()
    loaded.load(tmp_path)

    assert (loaded.schedule_step, loaded.skipped_steps) == (5, 2)


def test_the_export_holds_tied_tensors_once(tmp_path):
    engine = make()
    engine.export_hf(tmp_path)

    assert load_file(tmp_path / "model.safetensors").keys() == {spec.name for spec in engine.weight_manifest().sent}
    assert json.loads((tmp_path / "config.json").read_text())["tie_word_embeddings"] is True


def test_saving_needs_everything_on_the_device(tmp_path):
    engine = make()
    engine.offload(engine.resident())

    with pytest.raises(RlError, match="offloaded"):
        engine.save(tmp_path)
    assert list(tmp_path.iterdir()) == []
