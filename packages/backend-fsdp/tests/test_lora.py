"""Low-rank adapters on one worker: gradients, reference, streams, exports and checkpoints."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from peft import PeftModel
from rl_backend_fsdp.config import FSDPConfig
from rl_backend_fsdp.engine import FSDPEngine
from rl_core.contracts.engine import EngineConfig, EngineRole
from rl_core.errors import CheckpointError, ConfigError
from rl_core.single_controller.base.collective import SoloCollective, WorkerContext
from rl_testing.contracts.engine_batch import as_batch, make_rows, num_tokens, slow_log_probs
from rl_testing.contracts.engine_losses import ENTROPY_WEIGHT, PolicyLoss, ValueLoss
from rl_testing.contracts.engine_suite import ADAM, SGD
from rl_testing.models import save_tiny_model
from safetensors.torch import load_file, save_file
from torch.func import functional_call
from transformers import AutoModelForCausalLM

VOCAB = 300
ROWS = make_rows(VOCAB)
BATCH = as_batch(ROWS)
CONTEXT = WorkerContext(0, 1, 0, 1, "cpu", SoloCollective())
RANK, ALPHA = 2, 6.0
OPTIM = replace(ADAM, lr_scheduler_type="cosine", lr_warmup_steps=1)

_folder = tempfile.TemporaryDirectory(prefix="tiny-model-")
PATH = str(save_tiny_model(Path(_folder.name, "qwen2"), hidden_size=32))


@pytest.fixture
def start():
    built = []

    def start(role=EngineRole.POLICY, *, optim=SGD, plugin=None, path=PATH, export="merged", dropout=0.0, **model):
        further = SimpleNamespace(type="lora", export=export, dropout=dropout)
        section = SimpleNamespace(**({"path": path, "lora_rank": RANK, "lora_alpha": ALPHA, "lora": further} | model))
        config = EngineConfig(optim=optim, total_training_steps=6, micro_batch_size=3, plugin=plugin)
        built.append(FSDPEngine(role, section, config, CONTEXT))
        built[-1].initialize()
        return built[-1]

    yield start
    for engine in built:
        engine.close()


def train(engine, steps=2):
    loss = ValueLoss if engine.role is EngineRole.VALUE else PolicyLoss
    told = []
    for _ in range(steps):
        metrics = engine.forward_backward(BATCH, loss(num_tokens(ROWS)))
        told.append((metrics["loss"].value, engine.optimizer_step(), engine.lr_scheduler_step()))
    return told


def stream(engine, name="weights"):
    return {part.name: part.tensor.clone() for bucket in engine.named_weights(1 << 20, name) for part in bucket.slices}


def log_probs(engine):
    return engine.forward(BATCH, {"log_probs"}).batch["log_probs"].values()


def assert_same_bits(found, expected):
    assert found.keys() == expected.keys()
    assert [name for name, tensor in expected.items() if not torch.equal(found[name], tensor)] == []


# Training.


def slow_update(adapter, base, model, rate):
    """One step of plain SGD on A and B, through W + (alpha / r) B A written out."""
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in adapter.items()}
    whole = dict(base)
    for name in base:
        stem = f"base_model.model.{name.removesuffix('.weight')}.lora_"
        if f"{stem}A.weight" in leaves:
            whole[name] = base[name] + ALPHA / RANK * leaves[f"{stem}B.weight"] @ leaves[f"{stem}A.weight"]

    def logits(weights, ids):
        return functional_call(model, weights, (), {"input_ids": ids[None], "use_cache": False}).logits[0]

    loss = torch.zeros(())
    for row in ROWS:
        scores, entropy = slow_log_probs(logits, whole, row, 1.0)
        gain = row.advantages * scores + ENTROPY_WEIGHT * entropy
        loss = loss - (gain * row.mask).sum() / num_tokens(ROWS)
    grads = torch.autograd.grad(loss, list(leaves.values()))
    return {name: (leaf - rate * grad).detach() for (name, leaf), grad in zip(leaves.items(), grads, strict=True)}


def test_the_base_stream_has_no_adapter_in_it(start):
    """What an engine needs that keeps adapters beside the base: the frozen weights, before and after updates."""
    engine = start()
    base = stream(engine)
    train(engine, 1)
    assert_same_bits(stream(engine, "base"), base)
    assert engine.weight_manifest("base").entries == engine.weight_manifest("weights").entries
    assert engine.weight_manifest("base").stream == "base"
    merged = stream(engine)
    assert any(not torch.equal(merged[name], tensor) for name, tensor in base.items())


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_update_is_that_of_the_formula(start, checkpointing):
    """Also where activations are recomputed, though no input of the first block has a gradient."""
    engine = start(enable_gradient_checkpointing=checkpointing)
    base, expected = stream(engine), stream(engine, "adapter")
    plain = AutoModelForCausalLM.from_pretrained(PATH)
    for _ in range(2):
        train(engine, 1)
        expected = slow_update(expected, base, plain, SGD.lr)
    found = stream(engine, "adapter")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-6, msg=lambda text, n=name: f"{n}: {text}")


def test_the_optimizer_has_state_for_adapters_only(start):
    engine = start(optim=ADAM)
    train(engine, 1)
    trained = sum(tensor.numel() for tensor in stream(engine, "adapter").values())
    whole = sum(tensor.numel() for tensor in stream(engine).values())
    state = [value for values in engine.optimizer.state.values() for value in values.values()]
    assert sum(value.nbytes for value in state if value.ndim) == 2 * 4 * trained
    assert sum(value.nbytes for value in state if not value.ndim) <= 8 * len(engine.optimizer.state)
    assert trained < whole / 5


def test_the_base_is_kept_in_the_format_of_the_computation(start):
    engine = start(plugin=FSDPConfig(dtype="bf16"))
    sizes = {}
    for name, parameter in engine.module("test").named_parameters():
        sizes[parameter.dtype] = sizes.get(parameter.dtype, 0) + parameter.numel()
        assert (parameter.dtype == torch.float32) == (".lora_" in name)
    assert engine.device_bytes() == pytest.approx(2 * sizes[torch.bfloat16] + 4 * sizes[torch.float32], rel=0.02)
    before = stream(engine, "adapter")
    train(engine)
    moved = stream(engine, "adapter")
    assert all(not torch.equal(moved[name], before[name]) for name in moved)
    assert {tensor.dtype for tensor in moved.values()} == {torch.float32}
    assert {tensor.dtype for tensor in stream(engine).values()} == {torch.bfloat16}


@pytest.mark.parametrize("dtype", [None, "bf16"])
@pytest.mark.parametrize("first", [True, False])
def test_switched_off_it_is_the_base_model_to_the_bit(start, dtype, first):
    """Also when the very first pass is one without adapters, as in a run that scores its reference first."""
    engine = start(plugin=FSDPConfig(dtype=dtype))
    base = start(EngineRole.REFERENCE, optim=None, plugin=FSDPConfig(dtype=dtype, model_dtype=dtype or "fp32"))
    expected = log_probs(base)
    if first:
        with engine.disable_adapter():
            assert torch.equal(log_probs(engine), expected)
    train(engine, 3)
    with engine.disable_adapter():
        assert torch.equal(log_probs(engine), expected)
    assert (log_probs(engine) - expected).abs().max() > 0.1


def test_a_fresh_adapter_changes_nothing(start):
    assert torch.equal(log_probs(start()), log_probs(start(lora_rank=0)))


def test_a_critic_learns_too(start, tmp_path):
    engine = start(EngineRole.VALUE, optim=ADAM)
    losses = [loss for loss, _, _ in train(engine, 6)]
    assert losses[-1] < losses[0] / 2
    assert "score.weight" in stream(engine)
    engine.save(tmp_path)
    resumed = start(EngineRole.VALUE, optim=ADAM)
    resumed.load(tmp_path)
    assert_same_bits(stream(resumed), stream(engine))


# Streams and exports.


def test_merged_weights_compute_what_the_adapters_do(start, tmp_path):
    engine = start()
    train(engine)
    engine.export_hf(tmp_path)
    assert not [name for name in stream(engine) if "lora" in name or "base_layer" in name]
    assert_same_bits(dict(load_file(tmp_path / "model.safetensors")), stream(engine))
    merged = start(EngineRole.REFERENCE, optim=None, path=str(tmp_path))
    torch.testing.assert_close(log_probs(merged), log_probs(engine), rtol=1e-5, atol=1e-5)
    base = start(EngineRole.REFERENCE, optim=None)
    assert (log_probs(merged) - log_probs(base)).abs().max() > 0.1


def test_merging_again_adds_nothing(start, tmp_path):
    """Neither a second stream, nor an export that is the base of fresh adapters, adds B A twice."""
    engine = start()
    train(engine)
    first = stream(engine)
    assert_same_bits(stream(engine), first)
    engine.export_hf(tmp_path)
    assert_same_bits(stream(start(path=str(tmp_path))), first)


def test_merging_goes_through_layers_that_keep_their_weight_the_other_way_round(start, tmp_path):
    path = str(save_tiny_model(tmp_path / "gpt2", model_type="gpt2", hidden_size=32))
    engine = start(path=path)
    train(engine)
    engine.export_hf(tmp_path / "export")
    merged = start(EngineRole.REFERENCE, optim=None, path=str(tmp_path / "export"))
    torch.testing.assert_close(log_probs(merged), log_probs(engine), rtol=1e-5, atol=1e-5)


def test_peft_reads_the_export_of_an_adapter(start, tmp_path):
    engine = start(export="adapter")
    train(engine)
    engine.export_hf(tmp_path)
    fields = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (fields["r"], fields["lora_alpha"], fields["base_model_name_or_path"]) == (RANK, ALPHA, PATH)
    assert fields["target_modules"] == ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]
    assert not list(tmp_path.glob("model*"))
    assert_same_bits(dict(load_file(tmp_path / "adapter_model.safetensors")), stream(engine, "adapter"))
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(PATH), tmp_path).merge_and_unload()
    merged = stream(engine)
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(merged.get(name, tensor), tensor, rtol=1e-5, atol=1e-6)


def test_a_run_starts_from_an_exported_adapter(start, tmp_path):
    engine = start(export="adapter")
    train(engine)
    engine.export_hf(tmp_path)
    again = start(lora_adapter_path=str(tmp_path))
    assert_same_bits(stream(again, "adapter"), stream(engine, "adapter"))
    with pytest.raises(ConfigError, match=r"rank 2 and alpha 6.* asks for 2 and 8"):
        start(lora_adapter_path=str(tmp_path), lora_alpha=8)


# Checkpoints.


def test_three_steps_a_checkpoint_and_three_more_are_six_steps(start, tmp_path):
    """With dropout, so that the random state counts."""
    straight = start(optim=OPTIM, dropout=0.2)
    expected = train(straight, 6)
    first = start(optim=OPTIM, dropout=0.2)
    assert train(first, 3) == expected[:3]
    first.save(tmp_path)
    resumed = start(optim=OPTIM, dropout=0.2)
    train(resumed, 1)
    resumed.load(tmp_path)
    assert train(resumed, 3) == expected[3:]
    assert_same_bits(stream(resumed), stream(straight))
    assert_same_bits(stream(resumed, "adapter"), stream(straight, "adapter"))


def test_a_checkpoint_holds_adapters_only(start, tmp_path):
    for name, rank in (("adapters", RANK), ("whole", 0)):
        engine = start(optim=ADAM, lora_rank=rank)
        train(engine, 1)
        engine.save(tmp_path / name)
    adapters, whole = (
        sum(file.stat().st_size for file in (tmp_path / name / "tensors").rglob("*.distcp"))
        for name in ("adapters", "whole")
    )
    trained = sum(tensor.nbytes for tensor in stream(start(), "adapter").values())
    assert 3 * trained < adapters < whole / 3


@pytest.fixture
def saved(start, tmp_path):
    engine = start(optim=ADAM)
    train(engine, 1)
    engine.save(tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def test_the_base_may_move(start, saved, tmp_path):
    shutil.copytree(PATH, tmp_path / "moved")
    engine = start(optim=ADAM, path=str(tmp_path / "moved"))
    engine.load(saved)
    assert train(engine, 1)[0][1].grad_norm > 0


def test_another_base_is_refused(start, saved, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(PATH, other)
    tensors = load_file(other / "model.safetensors")
    tensors["model.norm.weight"][0] += 1
    save_file(tensors, other / "model.safetensors", metadata={"format": "pt"})
    engine = start(optim=ADAM, path=str(other))
    before = stream(engine, "adapter")
    with pytest.raises(CheckpointError, match=r"for the base model .*qwen2 .* this run's base is .*other"):
        engine.load(saved)
    assert_same_bits(stream(engine, "adapter"), before)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"lora_alpha": 8.0}, "alpha 6; .* alpha 8"), ({"lora_rank": 0}, "adapters only"), ({"lora_rank": 3}, "rank 2")],
)
def test_adapters_that_would_compute_something_else_are_refused(start, saved, change, message):
    with pytest.raises(CheckpointError, match=message):
        start(optim=ADAM, **change).load(saved)


def test_a_checkpoint_of_all_weights_is_refused(start, tmp_path):
    start(lora_rank=0).save(tmp_path)
    with pytest.raises(CheckpointError, match="holds all weights"):
        start().load(tmp_path)
