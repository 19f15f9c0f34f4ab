import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from rl_core.config.optim import OptimConfig
from rl_core.errors import ConfigError
from rl_engine import optim
from rl_engine.optim import check_schedule, learning_rate_at, make_optimizer, set_learning_rate


def parameter():
    return [torch.nn.Parameter(torch.ones(3))]


def rates(config, steps, total=None):
    return [learning_rate_at(step, config, total) for step in range(steps)]


def test_the_default_is_adamw_with_its_settings():
    config = OptimConfig(lr=0.5, weight_decay=0.25, betas=[0.8, 0.9], override_optimizer_config={"eps": 1e-3})
    optimizer = make_optimizer(parameter(), config)
    assert type(optimizer) is torch.optim.AdamW
    (group,) = optimizer.param_groups
    assert (group["lr"], group["weight_decay"], group["betas"], group["eps"]) == (0.5, 0.25, (0.8, 0.9), 1e-3)


def test_an_optimizer_gets_only_what_it_takes():
    optimizer = make_optimizer(parameter(), OptimConfig(optimizer="SGD", lr=0.5, weight_decay=0.0))
    assert type(optimizer) is torch.optim.SGD


def test_a_step_on_the_cpu_is_one_operation_unless_the_user_says_how():
    assert make_optimizer(parameter(), OptimConfig()).defaults["fused"] is True
    chosen = make_optimizer(parameter(), OptimConfig(override_optimizer_config={"foreach": True}))
    assert (chosen.defaults["fused"], chosen.defaults["foreach"]) == (None, True)
    assert "fused" not in make_optimizer(parameter(), OptimConfig(optimizer="NAdam")).defaults


def test_a_fused_step_is_the_plain_one():
    steps = []
    for own in ({}, {"fused": False}):
        (tensor,) = parameters = parameter()
        optimizer = make_optimizer(parameters, OptimConfig(lr=0.1, override_optimizer_config=own))
        for number in range(3):
            tensor.grad = torch.tensor([1.0, -2.0, 0.5]) * (number + 1)
            optimizer.step()
        steps.append(tensor.detach())
    torch.testing.assert_close(*steps)


def test_classes_of_another_module(tmp_path, monkeypatch):
    (tmp_path / "own_optimizers.py").write_text(
        "import torch\nclass Halving(torch.optim.SGD):\n    def __init__(self, params, lr): super().__init__(params, lr / 2)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = OptimConfig(optimizer="Halving", optimizer_impl="own_optimizers", lr=1.0)
    assert make_optimizer(parameter(), config).param_groups[0]["lr"] == 0.5


def test_plugins_come_first(monkeypatch):
    made = []
    registry = SimpleNamespace(load=lambda kind, name: lambda parameters, config: made.append((kind, name)) or "made")
    monkeypatch.setattr(optim, "get_registry", lambda: registry)
    assert make_optimizer(parameter(), OptimConfig(optimizer="mine")) == "made"
    assert made == [("optimizer", "mine")]


def test_an_unknown_name_gets_the_closest():
    with pytest.raises(ConfigError, match=r"'AdanW'.*closest: .*AdamW"):
        make_optimizer(parameter(), OptimConfig(optimizer="AdanW"))


def test_a_module_that_is_not_there():
    with pytest.raises(ConfigError, match="optimizer_impl is 'no_such_module'"):
        make_optimizer(parameter(), OptimConfig(optimizer_impl="no_such_module"))


def test_settings_it_does_not_take():
    with pytest.raises(ConfigError, match=r"refuses its settings .*momentums"):
        make_optimizer(parameter(), OptimConfig(override_optimizer_config={"momentums": 1}))


def test_constant():
    assert rates(OptimConfig(lr=2.0), 3) == [2, 2, 2]


def test_warm_up_from_zero_or_from_the_first_step():
    config = OptimConfig(lr=2.0, lr_warmup_steps=4)
    assert rates(config, 6) == [0, 0.5, 1, 1.5, 2, 2]
    assert rates(replace(config, zero_indexed_step=False), 5) == [0.5, 1, 1.5, 2, 2]


def test_warm_up_as_a_share():
    config = OptimConfig(lr=2.0, lr_warmup_steps_ratio=0.2)
    assert rates(config, 4, total=10) == [0, 1, 2, 2]


def test_linear_falls_to_its_floor_and_stays():
    config = OptimConfig(lr=2.0, lr_scheduler_type="linear", min_lr_ratio=0.5, lr_warmup_steps=0)
    assert rates(config, 7, total=4) == pytest.approx([2, 1.75, 1.5, 1.25, 1, 1, 1])


def test_cosine_falls_like_one():
    config = OptimConfig(lr=2.0, lr_scheduler_type="cosine", lr_warmup_steps=2, min_lr_ratio=0.1)
    expected = [0, 1] + [0.2 + 1.8 * (1 + math.cos(math.pi * step / 4)) / 2 for step in range(5)] + [0.2]
    assert rates(config, 8, total=6) == pytest.approx(expected)


def test_cosine_with_more_waves():
    config = OptimConfig(lr=1.0, lr_scheduler_type="cosine", num_cycles=1.0)
    assert rates(config, 5, total=4) == pytest.approx([1, 0.5, 0, 0.5, 1])


def test_the_sections_own_length_wins():
    config = OptimConfig(lr=1.0, lr_scheduler_type="linear", total_training_steps=2)
    assert rates(config, 3, total=100) == [1, 0.5, 0]


@pytest.mark.parametrize("change", [{"lr_scheduler_type": "linear"}, {"lr_warmup_steps_ratio": 0.1}])
def test_what_needs_a_length_says_so(change):
    with pytest.raises(ConfigError, match=r"set optim.total_training_steps"):
        check_schedule(OptimConfig(**change), None)


def test_an_unknown_shape():
    with pytest.raises(ConfigError, match="'wsd'; choose one of constant, linear, cosine"):
        check_schedule(OptimConfig(lr_scheduler_type="wsd"), 10)


def test_the_rate_reaches_every_group_and_tensors_too():
    first, second = parameter(), parameter()
    optimizer = torch.optim.SGD([{"params": first}, {"params": second, "lr": torch.tensor(1.0)}], lr=1.0)
    set_learning_rate(optimizer, 0.25)
    assert [float(group["lr"]) for group in optimizer.param_groups] == [0.25, 0.25]
