"""A mixture of experts over two worker processes: the numbers of one worker, whatever each of them holds of the experts."""

from __future__ import annotations

import tempfile
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from rl_backend_fsdp.engine import FSDPEngine
from rl_core.contracts.engine import EngineConfig, EngineRole
from rl_testing.contracts import engine_calls as calls
from rl_testing.contracts.engine_batch import as_batch, make_rows, num_tokens
from rl_testing.contracts.engine_losses import PolicyLoss
from rl_testing.contracts.engine_suite import SGD
from rl_testing.contracts.processes import ProcessRanks
from rl_testing.contracts.ranks import ThreadRanks, run_on_all
from rl_testing.models import save_tiny_model
from safetensors.torch import load_file

VOCAB = 64
ROWS = make_rows(VOCAB)
BATCH = as_batch(ROWS)
LOSS = PolicyLoss(num_tokens(ROWS))
EXPERTS = {"num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
"""Three over two ranks: one holds two of them."""

_folder = tempfile.TemporaryDirectory(prefix="tiny-model-")
PATH = save_tiny_model(
    _folder.name, model_type="qwen3_moe", vocab_size=VOCAB, hidden_size=32, with_tokenizer=False, **EXPERTS
)


@pytest.fixture
def ranks():
    """``ranks(world_size, **model)``: engines after two steps, closed after the test."""
    opened = []

    def start(world_size, **model):
        section = SimpleNamespace(path=str(PATH), **model)
        build = partial(FSDPEngine, EngineRole.POLICY, section, EngineConfig(optim=SGD, micro_batch_size=2))
        kind = ThreadRanks if world_size == 1 else ProcessRanks
        opened.append(kind(world_size, build, dispose=calls.close))
        run_on_all(opened[-1], calls.initialize)
        return opened[-1]

    yield start
    for group in opened:
        group.close()


def ask(group, call, **arguments):
    return run_on_all(group, partial(call, **arguments))


@pytest.mark.heavy
@pytest.mark.parametrize(
    "model",
    [
        {"enable_gradient_checkpointing": True},
        {"use_remove_padding": False},
        {"lora_rank": 2, "lora_alpha": 4},
    ],
)
def test_two_ranks_are_one(ranks, tmp_path, model):
    found = {}
    for world_size in (1, 2):
        group = ranks(world_size, **model)
        steps = [steps[0].result for steps in ask(group, calls.train, batches=[BATCH], loss_fn=LOSS)]
        answers = ask(group, calls.forward, batch=BATCH, outputs=frozenset({"log_probs"}))
        streams = ask(group, calls.stream)
        assert streams[0].manifest == streams[-1].manifest
        assert streams[0].digest == streams[-1].digest
        assert max(streams[0].bytes) <= max(calls.BUCKET_BYTES, VOCAB * 32 * 4)
        ask(group, calls.export, directory=tmp_path / str(world_size))
        exported = load_file(tmp_path / str(world_size) / "model.safetensors")
        assert exported.keys() == streams[0].weights.keys() == load_file(PATH / "model.safetensors").keys()
        assert all(torch.equal(exported[name], tensor) for name, tensor in streams[0].weights.items())
        found[world_size] = steps[0].grad_norm, calls.collected(answers)["log_probs"], exported
    assert found[2][0] == pytest.approx(found[1][0], rel=1e-4)
    torch.testing.assert_close(found[2][1], found[1][1], rtol=1e-4, atol=1e-4)
    for name, tensor in found[1][2].items():
        torch.testing.assert_close(found[2][2][name], tensor, rtol=1e-4, atol=1e-5)
