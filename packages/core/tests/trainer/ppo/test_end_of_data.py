from types import SimpleNamespace

import pytest
from rl_core.config.schedule import StepSchedule
from rl_core.errors import DataError
from rl_core.trainer.ppo import end_of_data
from rl_core.trainer.ppo.end_of_data import end_early


class Trainer:
    """A run of 10 steps that has begun the one after ``step``, and what it does at its end."""

    def __init__(self, step, first_step=1, test_freq=4):
        self.global_step, self.total_steps, self.first_step = step + 1, 10, first_step
        self.config = SimpleNamespace(trainer=SimpleNamespace(total_epochs=2))
        self.schedule = StepSchedule(5, 10, save_freq=-1, test_freq=test_freq, validates_before=False)
        self.validator, self.trackers, self.did = object(), self, []

    def validate(self):
        self.did.append(("validated", self.global_step))
        return {"val": 1.0}

    def log(self, step, metrics):
        self.did.append(("logged", step, metrics))


@pytest.fixture(autouse=True)
def saved(monkeypatch):
    monkeypatch.setattr(
        end_of_data, "save_interrupted", lambda trainer: trainer.did.append(("saved", trainer.global_step))
    )


def test_the_step_before_is_the_last(capsys):
    trainer = Trainer(step=3)
    end_early(trainer, "2 of 4 groups")
    assert trainer.did == [("validated", 3), ("logged", 3, {"val": 1.0}), ("saved", 3)]
    said = capsys.readouterr().out
    assert "note: the data was used up after 3 of 10 steps (trainer.total_epochs: 2); 2 of 4 groups." in said


@pytest.mark.parametrize(
    "trainer",
    [Trainer(step=4), Trainer(step=3, test_freq=0), Trainer(step=3, first_step=4)],
    ids=["validated with its step", "never validates", "nothing trained since the checkpoint"],
)
def test_nothing_is_validated_twice(trainer):
    end_early(trainer, None)
    assert trainer.did == [("saved", trainer.global_step)]


def test_without_one_whole_step_it_is_an_error():
    trainer = Trainer(step=0)
    with pytest.raises(DataError, match=r"after 0 of 10 steps \(trainer.total_epochs: 2\); none\. Nothing was trained"):
        end_early(trainer, "none")
    assert trainer.did == []
