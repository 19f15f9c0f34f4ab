from types import SimpleNamespace

import pytest
from rl_core.trainer.trackers.wandb import WandbTracker


@pytest.mark.heavy
def test_an_offline_run_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    trainer = SimpleNamespace(default_local_dir=str(tmp_path), project_name="p", experiment_name="e")
    tracker = WandbTracker(SimpleNamespace(trainer=trainer))
    tracker.log(1, {"actor/pg_loss": 0.5})
    tracker.log_generations(1, [{"input": "p", "output": "r", "gts": "g", "score": 1}])
    tracker.resume(1)
    tracker.close()

    assert list((tmp_path / "wandb").glob("offline-run-*/run-*.wandb"))
