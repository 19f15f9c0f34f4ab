"""A mixture of experts from an update to the next generation: what the FSDP engine streams, exports and keeps."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rl_backend_fsdp.engine import FSDPEngine
from rl_core.contracts.engine import EngineConfig, EngineRole
from rl_core.errors import WeightSyncError
from rl_core.resharding.digest import add_to_digest
from rl_core.single_controller.base.collective import SoloCollective, WorkerContext
from rl_rollout_hf.device_weights import DeviceWeights
from rl_rollout_hf.model import build_empty, named_weights
from rl_rollout_hf.weights import ModelSink, ModelWeights
from rl_testing.contracts.engine_batch import as_batch, make_rows, num_tokens
from rl_testing.contracts.engine_losses import PolicyLoss
from rl_testing.contracts.engine_suite import ADAM
from rl_testing.models import save_tiny_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

TYPES: dict[str, dict[str, Any]] = {
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
}
ROWS = make_rows(300)
LOSS = PolicyLoss(num_tokens(ROWS))
CONTEXT = WorkerContext(0, 1, 0, 1, "cpu", SoloCollective())
SMALL_BUCKET = 1000
"""Bytes; the experts of a layer are several times as many, one expert is more."""

pytestmark = pytest.mark.parametrize("model_type", TYPES)


@pytest.fixture
def folder(model_type, tmp_path):
    fields = {"hidden_size": 32, "with_tokenizer": False, **TYPES[model_type]}
    return save_tiny_model(tmp_path / "model", model_type=model_type, **fields)


@pytest.fixture
def start(folder):
    """``start()``: an engine that trains the model in ``folder``, closed after the test."""
    built: list[FSDPEngine] = []

    def start(**model: Any) -> FSDPEngine:
        section = SimpleNamespace(path=str(folder), **model)
        built.append(FSDPEngine(EngineRole.POLICY, section, EngineConfig(optim=ADAM), CONTEXT))
        built[-1].initialize()
        return built[-1]

    yield start
    for engine in built:
        engine.close()


def step(engine: FSDPEngine) -> None:
    engine.forward_backward(as_batch(ROWS), LOSS)
    assert engine.optimizer_step().grad_norm > 0


def streamed(engine: FSDPEngine, bucket_bytes: int) -> dict[str, torch.Tensor]:
    return {part.name: part.tensor.clone() for one in engine.named_weights(bucket_bytes) for part in one.slices}


@pytest.mark.parametrize("bucket_bytes", [SMALL_BUCKET, 1 << 30])
def test_stream_and_export_are_what_transformers_would_save(start, folder, tmp_path, bucket_bytes):
    engine = start()
    step(engine)
    plain = AutoModelForCausalLM.from_pretrained(folder)
    trained = dict(engine.module("test").named_weights())
    with torch.no_grad():
        for name, tensor in plain.named_parameters():
            assert not torch.equal(tensor, trained[name]), name
            tensor.copy_(trained[name])
    plain.save_pretrained(tmp_path / "plain")
    expected = load_file(tmp_path / "plain" / "model.safetensors")
    engine.export_hf(tmp_path / "export")
    for found in (streamed(engine, bucket_bytes), load_file(tmp_path / "export" / "model.safetensors")):
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_the_hf_generator_takes_the_experts_of_the_stream(start, tmp_path):
    engine = start()
    step(engine)
    config = engine.module("test").hf_config
    served = build_empty(config, torch.float32, torch.device("cpu"), trust_remote_code=False)

    async def inline(function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    async def hand_over(sink: ModelSink, *, leave_out: str = "") -> None:
        digest: dict[str, int] = {}
        await sink.begin(1, engine.weight_manifest())
        for bucket in engine.named_weights(SMALL_BUCKET):
            if all(leave_out not in part.name for part in bucket.slices) or not leave_out:
                await sink.put(bucket)
            add_to_digest(digest, bucket.slices)
        await sink.end(digest)

    weights = ModelWeights(served)
    sink = ModelSink(weights, inline, is_awake=lambda: True, check_model=lambda: None)
    asyncio.run(hand_over(sink))
    memory = DeviceWeights(weights.tensors.values())
    assert memory.num_bytes == sum(tensor.nbytes for _, tensor in named_weights(served))
    memory.release(keep=True)
    memory.take()
    trained = dict(engine.module("test").named_weights())
    assert all(torch.equal(tensor, trained[name]) for name, tensor in named_weights(served))
    with pytest.raises(WeightSyncError, match=r"experts\.3\."):
        asyncio.run(hand_over(sink, leave_out="experts.3."))
    assert sink.version is None


def test_a_checkpoint_goes_on_bit_for_bit(start, tmp_path):
    straight, saved = start(), start()
    for engine in (straight, saved):
        step(engine)
    saved.save(tmp_path / "checkpoint")
    loaded = start()
    loaded.load(tmp_path / "checkpoint")
    for engine in (straight, loaded):
        step(engine)
    expected, found = streamed(straight, 1 << 30), streamed(loaded, 1 << 30)
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_critic_trains_and_is_exported(folder, tmp_path):
    engine = FSDPEngine(EngineRole.VALUE, SimpleNamespace(path=str(folder)), EngineConfig(optim=ADAM), CONTEXT)
    engine.initialize()
    names = {spec.name for spec in engine.weight_manifest().sent}
    engine.export_hf(tmp_path / "export")
    engine.close()
    assert names == {*load_file(folder / "model.safetensors"), "score.weight"} - {"lm_head.weight"}
    again = FSDPEngine(EngineRole.VALUE, SimpleNamespace(path=str(tmp_path / "export")), EngineConfig(), CONTEXT)
    again.initialize()
    assert {spec.name for spec in again.weight_manifest().sent} == names
    again.close()
