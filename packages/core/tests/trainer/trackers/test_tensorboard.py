from types import SimpleNamespace

import pytest
from rl_core.trainer.trackers.tensorboard import TensorboardTracker
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def test_scalars_can_be_read_back_and_resume_hides_later_steps(tmp_path):
    config = SimpleNamespace(trainer=SimpleNamespace(default_local_dir=str(tmp_path)))
    first = TensorboardTracker(config)
    for step in (1, 2, 3):
        first.log(step, {"actor/pg_loss": step / 2})
    first.resume(1)
    first.log(2, {"actor/pg_loss": 20.0})
    first.log_generations(2, [{"input": "p", "output": "r", "score": 1}])
    first.close()

    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("actor/pg_loss")] == [
        (1, pytest.approx(0.5)),
        (2, 20.0),
    ]
    assert "generations/0/text_summary" in events.Tags()["tensors"]
