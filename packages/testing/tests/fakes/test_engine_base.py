from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from rl_core.contracts.engine import EngineConfig, EngineRole
from rl_core.errors import ConfigError, ShapeError
from rl_core.single_controller.base.collective import SoloCollective, WorkerContext
from rl_testing.contracts.engine_batch import as_batch, make_rows
from rl_testing.contracts.engine_losses import ExplodingLoss, PolicyLoss
from rl_testing.fakes.engine_config import FakeEngineConfig
from rl_testing.fakes.plain_engine import PlainEngine

SGD = {"optimizer": "SGD", "lr": 0.1}


def make(role=EngineRole.POLICY, **config):
    model = SimpleNamespace(path="tiny", override_config={"vocab_size": 13, "hidden_size": 4})
    context = WorkerContext(0, 1, 0, 1, "cpu", SoloCollective())
    engine = PlainEngine(role, model, EngineConfig(**{"optim": SGD, **config}), context)
    engine.initialize()
    return engine


@pytest.fixture
def batch():
    return as_batch(make_rows(13), marked=[0])


def test_skipped_steps_are_counted(batch):
    engine = make()
    for expected in (1, 2):
        engine.forward_backward(batch, ExplodingLoss(10))
        assert engine.optimizer_step().skipped
        assert engine.skipped_steps == expected
    engine.forward_backward(batch, PolicyLoss(10))
    assert not engine.optimizer_step().skipped
    assert engine.skipped_steps == 2


def test_a_schedule_needs_an_optimizer():
    with pytest.raises(ConfigError, match="reference engine without an `optim` section"):
        make(EngineRole.REFERENCE, optim=None).lr_scheduler_step()


def test_a_schedule_that_cannot_work_is_refused_at_the_start():
    with pytest.raises(ConfigError, match="total_training_steps"):
        make(optim={**SGD, "lr_scheduler_type": "cosine"})


def test_a_loss_must_be_a_scalar(batch):
    class PerToken(PolicyLoss):
        def __call__(self, outputs, micro_batch):
            return outputs.log_probs, {}

    with pytest.raises(ShapeError, match="PerToken returned shape"):
        make().forward_backward(batch, PerToken(10))


def test_a_loss_without_a_graph_changes_nothing(batch):
    class Constant(PolicyLoss):
        def __call__(self, outputs, micro_batch):
            return torch.zeros(()), {}

    engine = make()
    assert engine.forward_backward(batch, Constant(10))["loss"].value == 0.0
    assert engine.optimizer_step().grad_norm == 0.0


def test_dropout_is_for_training_alone(batch):
    plain, dropping = make(), make(plugin=FakeEngineConfig(dropout=0.5))
    loss = PolicyLoss(10)

    scores = [engine.forward(batch, {"log_probs"}).batch["log_probs"].values() for engine in (plain, dropping)]
    losses = [engine.forward_backward(batch, loss)["loss"].value for engine in (plain, dropping, dropping)]

    assert torch.equal(*scores)
    assert len(set(losses)) == 3


def test_padding_reaches_a_loss_as_nan(batch):
    seen = []

    class Looks(PolicyLoss):
        def __call__(self, outputs, micro_batch):
            seen.append(outputs)
            return super().__call__(outputs, micro_batch)

    make().forward_backward(batch, Looks(10))

    assert seen[0].log_probs.isnan().sum() == 7 * 6 - 21
    assert not seen[0].log_probs[seen[0].response_mask].isnan().any()
