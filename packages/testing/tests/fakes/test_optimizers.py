from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from rl_core.errors import ConfigError
from rl_testing.fakes.optimizers import apply_gradients, check, learning_rate_at, setting, split_key, state_key


@dataclass
class Section:
    lr: float = 1.0
    weight_decay: float | None = None


def step(optim, lr, value, gradient, state=None):
    parameters = {"w": torch.tensor([value], dtype=torch.float64)}
    after = apply_gradients(optim, lr, parameters, {"w": torch.tensor([gradient], dtype=torch.float64)}, state or {})
    return parameters["w"].item(), after


@pytest.mark.parametrize("optim", [Section(lr=2.0), {"lr": 2.0}, SimpleNamespace(lr=2.0)])
def test_a_section_may_be_any_plain_object(optim):
    assert setting(optim, "lr", 1.0) == 2.0
    assert setting(optim, "weight_decay", 0.5) == 0.5
    assert setting(optim, "betas", None) is None


def test_sgd_takes_the_gradient_times_the_rate():
    value, state = step({"optimizer": "SGD"}, 0.5, 3.0, 2.0)

    assert value == 2.0
    assert state == {}


def test_sgd_decays():
    assert step({"optimizer": "SGD", "weight_decay": 0.1}, 0.5, 3.0, 2.0)[0] == pytest.approx(3.0 - 0.5 * 2.3)


def test_adam_remembers():
    optim = {"optimizer": "AdamW", "betas": [0.9, 0.99]}
    value, state = step(optim, 0.1, 1.0, 4.0)
    assert value == pytest.approx(0.9)
    assert state[state_key("w", "exp_avg")].item() == pytest.approx(0.4)
    assert state[state_key("w", "exp_avg_sq")].item() == pytest.approx(0.16)

    again, state = step(optim, 0.1, value, 0.0, state)

    # m = 0.36 / (1 - 0.81), v = 0.1584 / (1 - 0.9801)
    assert again == pytest.approx(0.9 - 0.1 * (0.36 / 0.19) / (0.1584 / 0.0199) ** 0.5)
    assert state[state_key("w", "step")].item() == 2.0


def test_a_rank_without_parameters_has_no_state():
    assert apply_gradients({"optimizer": "AdamW"}, 0.1, {}, {}, {}) == {}


def test_keys_hold_names_with_dots():
    assert split_key(state_key("model.layers.0.weight", "exp_avg")) == ("model.layers.0.weight", "exp_avg")


@pytest.mark.parametrize(("key", "value"), [("optimizer", "Muon"), ("lr_scheduler_type", "cyclic")])
def test_unknown_names_are_refused(key, value):
    with pytest.raises(ConfigError, match=rf"optim\.{key}='{value}'"):
        check({key: value})


@pytest.mark.parametrize(
    ("optim", "expected"),
    [
        ({}, [8.0] * 6),
        ({"lr_warmup_steps": 2}, [0.0, 4.0, 8.0, 8.0, 8.0, 8.0]),
        ({"lr_warmup_steps_ratio": 0.5}, [0.0, 4.0, 8.0, 8.0, 8.0, 8.0]),
        ({"lr_warmup_steps": 2, "zero_indexed_step": False}, [4.0, 8.0, 8.0, 8.0, 8.0, 8.0]),
        ({"lr_scheduler_type": "linear"}, [8.0, 6.0, 4.0, 2.0, 0.0, 0.0]),
        ({"lr_scheduler_type": "linear", "min_lr_ratio": 0.5}, [8.0, 7.0, 6.0, 5.0, 4.0, 4.0]),
        ({"lr_scheduler_type": "cosine"}, [8.0, 4 + 4 * 0.5**0.5, 4.0, 4 - 4 * 0.5**0.5, 0.0, 0.0]),
        ({"lr_scheduler_type": "cosine", "total_training_steps": 2}, [8.0, 4.0, 0.0, 0.0, 0.0, 0.0]),
    ],
)
def test_schedules(optim, expected):
    rates = [learning_rate_at(number, {"lr": 8.0, **optim}, total_steps=4) for number in range(6)]

    assert rates == pytest.approx(expected)


@pytest.mark.parametrize("optim", [{"lr_scheduler_type": "cosine"}, {"lr_warmup_steps_ratio": 0.1}])
def test_a_schedule_without_a_length_is_refused(optim):
    with pytest.raises(ConfigError, match="total_training_steps"):
        learning_rate_at(0, optim, total_steps=None)
