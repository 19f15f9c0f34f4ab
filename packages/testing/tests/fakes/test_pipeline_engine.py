from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from rl_core.contracts.engine import EngineConfig, EngineRole
from rl_core.errors import ConfigError
from rl_core.single_controller.base.collective import SoloCollective, WorkerContext
from rl_testing.contracts import engine_calls as calls
from rl_testing.contracts.engine_batch import as_batch, make_rows, num_tokens
from rl_testing.contracts.engine_losses import PolicyLoss
from rl_testing.contracts.ranks import ThreadRanks, run_on_all
from rl_testing.fakes import tiny_model
from rl_testing.fakes.engine_config import FakeEngineConfig
from rl_testing.fakes.pipeline_engine import PipelineEngine
from rl_testing.fakes.plain_engine import PlainEngine

SGD = {"optimizer": "SGD", "lr": 0.1}


@pytest.fixture
def start():
    opened = []

    def start(world_size, engine=PipelineEngine, *, tied=False, num_layers=3, role=EngineRole.POLICY, **sizes):
        model = SimpleNamespace(
            override_config={
                "vocab_size": 13,
                "hidden_size": 4,
                "num_layers": num_layers,
                "tie_word_embeddings": tied,
            }
        )
        config = EngineConfig(optim=SGD, micro_batch_size=2, plugin=FakeEngineConfig(**sizes))
        ranks = ThreadRanks(world_size, lambda context: engine(role, model, config, context), deadline_s=20.0)
        opened.append(ranks)
        run_on_all(ranks, calls.initialize)
        return ranks

    yield start
    for ranks in opened:
        ranks.close()


def held(engine):
    return {name: tuple(part.shape) for name, part in engine.parameters("test").items()}


def test_stages_hold_different_layers_and_the_head_is_shared(start):
    first, _, third, fourth = run_on_all(start(4), held)

    assert list(first) == [tiny_model.EMBED, *tiny_model.layer_names(0), *tiny_model.layer_names(1)]
    assert first[tiny_model.EMBED] == (13, 4)
    assert list(third) == list(fourth) == [*tiny_model.layer_names(2), tiny_model.HEAD]
    assert (third[tiny_model.HEAD], fourth[tiny_model.HEAD]) == ((7, 4), (6, 4))


def test_owners_are_the_ranks_of_the_stage(start):
    manifest = run_on_all(start(4), lambda engine: engine.weight_manifest())[3]

    assert manifest.spec(tiny_model.EMBED).owner_ranks == (0, 1)
    assert manifest.spec(tiny_model.layer_names(2)[0]).owner_ranks == (2, 3)
    assert manifest.spec(tiny_model.HEAD).owner_ranks == (2, 3)


def test_only_the_last_stage_answers(start):
    infos = run_on_all(start(4, pipeline_size=2), calls.dispatch_info)

    assert [(info.dp_rank, info.is_collect) for info in infos] == [(0, False), (0, True), (1, False), (1, True)]


@pytest.mark.parametrize(
    ("world_size", "sizes"),
    [
        (3, {"pipeline_size": 3}),
        (4, {"pipeline_size": 4}),
        (3, {"vocab_parallel_size": 3}),
        (6, {"pipeline_size": 2, "vocab_parallel_size": 3}),
    ],
)
@pytest.mark.parametrize("tied", [False, True])
def test_any_layout_trains_as_one_worker_does(start, world_size, sizes, tied):
    """Stages without a layer, shares of 4 or 5 tokens, both ends of a tied tensor on one rank."""
    rows = make_rows(13)
    loss = PolicyLoss(num_tokens(rows))

    def train(engine):
        calls.train(engine, batches=[as_batch(rows)] * 2, loss_fn=loss)
        return calls.stream(engine).weights

    (expected,) = run_on_all(start(1, PlainEngine, tied=tied, num_layers=2), train)
    found = run_on_all(start(world_size, tied=tied, num_layers=2, **sizes), train)

    for weights in found:
        torch.testing.assert_close(weights, expected, rtol=1e-10, atol=1e-12)


def test_both_ends_of_a_tied_tensor_stay_equal(start):
    ranks = start(4, tied=True)
    rows = make_rows(13)
    run_on_all(ranks, lambda engine: calls.train(engine, batches=[as_batch(rows)] * 3, loss_fn=PolicyLoss(20)))

    parts = run_on_all(ranks, lambda engine: engine.parameters("test"))

    head = torch.cat([parts[2][tiny_model.HEAD], parts[3][tiny_model.HEAD]])
    torch.testing.assert_close(head, parts[0][tiny_model.EMBED], rtol=1e-14, atol=1e-15)


def test_a_value_model_has_its_head_on_the_last_stage(start):
    *_, last = run_on_all(start(2, role=EngineRole.VALUE), held)

    assert last[tiny_model.SCORE] == (1, 4)
    assert tiny_model.HEAD not in last


def test_workers_that_do_not_divide_are_refused_before_anything_is_allocated():
    context = WorkerContext(0, 3, 0, 3, "cpu", SoloCollective())
    config = EngineConfig(plugin=FakeEngineConfig(pipeline_size=2))

    with pytest.raises(ConfigError, match="there are 3"):
        PipelineEngine(EngineRole.POLICY, None, config, context)
