from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from rl_core.contracts.engine import EngineConfig, EngineRole
from rl_core.single_controller.base.collective import SoloCollective, WorkerContext
from rl_testing.fakes import tiny_model
from rl_testing.fakes.plain_engine import PlainEngine


def make(**sizes):
    model = SimpleNamespace(override_config={"vocab_size": 4, "hidden_size": 4, "num_layers": 0, **sizes})
    engine = PlainEngine(EngineRole.POLICY, model, EngineConfig(), WorkerContext(0, 1, 0, 1, "cpu", SoloCollective()))
    engine.initialize()
    return engine


def test_a_tied_head_is_no_parameter():
    assert list(make(tie_word_embeddings=True).parameters("test")) == [tiny_model.EMBED]
    assert list(make().parameters("test")) == [tiny_model.EMBED, tiny_model.HEAD]


def test_scores_are_those_of_the_softmax():
    parts = {tiny_model.EMBED: torch.empty(0), tiny_model.HEAD: torch.eye(4, dtype=torch.float64)}
    states = torch.tensor([[0.0, 2.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64).log1p()

    scores = make().score_tokens(parts, states, torch.tensor([1, 0]))

    assert scores["log_probs"].exp().tolist() == pytest.approx([1 / 2, 1 / 4])
    assert scores["entropy"][1].item() == pytest.approx(1.3862943611198906)
    assert scores["sum_pi_squared"].tolist() == pytest.approx([1 / 4 + 3 / 36, 1 / 4])


def test_every_rank_has_its_own_rows():
    context = WorkerContext(2, 3, 2, 3, "cpu", SoloCollective())
    info = PlainEngine(EngineRole.POLICY, None, EngineConfig(), context).dispatch_info()

    assert (info.dp_rank, info.dp_size, info.is_collect) == (2, 3, True)
