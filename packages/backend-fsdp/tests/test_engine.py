"""One engine on one worker: what the contract leaves to a backend."""

from __future__ import annotations

import functools
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from rl_backend_fsdp.config import FSDPConfig, WrapPolicyConfig
from rl_backend_fsdp.engine import FSDPEngine, sharded_parts
from rl_core.contracts.engine import EngineConfig, EngineRole, EngineState
from rl_core.errors import ConfigError, RlError
from rl_core.runtime.local import LocalWorkerGroup
from rl_core.single_controller.base import Dispatch, Worker, register
from rl_core.single_controller.base.collective import SoloCollective, WorkerContext
from rl_testing.contracts.engine_batch import as_batch, make_rows, num_tokens, slow_log_probs
from rl_testing.contracts.engine_losses import ExplodingLoss, PolicyLoss, RecordingLoss, ValueLoss
from rl_testing.contracts.engine_suite import ADAM, SGD
from rl_testing.models import save_tiny_model
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

VOCAB = 300
ROWS = make_rows(VOCAB)
BATCH = as_batch(ROWS)
LOSS = PolicyLoss(num_tokens(ROWS))
CONTEXT = WorkerContext(0, 1, 0, 1, "cpu", SoloCollective())

_folders = tempfile.TemporaryDirectory(prefix="tiny-models-")


@functools.cache
def folder(model_type: str = "qwen2", **fields: Any) -> str:
    name = "-".join([model_type, *(f"{key}_{value}" for key, value in sorted(fields.items()))])
    return str(save_tiny_model(Path(_folders.name, name), model_type=model_type, hidden_size=32, **fields))


@pytest.fixture(autouse=True)
def engines():
    """Engines that a test built; closed after it, and with them the process group."""
    built: list[FSDPEngine] = []
    yield built
    for engine in built:
        engine.close()
    assert not dist.is_initialized()


@pytest.fixture
def start(engines):
    def start(role=EngineRole.POLICY, *, path=None, plugin=None, optim=SGD, model=None, **config):
        section = SimpleNamespace(path=path or folder(), **(model or {}))
        settings = EngineConfig(optim=optim, plugin=plugin, **config)
        engines.append(FSDPEngine(role, section, settings, CONTEXT))
        engines[-1].initialize()
        return engines[-1]

    return start


def update(engine, steps=2, loss=LOSS):
    results = []
    for _ in range(steps):
        engine.forward_backward(BATCH, loss)
        results.append(engine.optimizer_step())
    return results


def weights(engine):
    return {part.name: part.tensor.clone() for bucket in engine.named_weights(1 << 20) for part in bucket.slices}


def assert_same(found, expected, rtol=1e-5, atol=1e-6):
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(
            found[name], expected[name], rtol=rtol, atol=atol, msg=lambda text, n=name: f"{n}: {text}"
        )


# Log-probs.


FORMATS = {"float64": 1e-6, "float32": 1e-5}
"""Relative; transformers computes norms and rotations in float32 also in a float64 model."""


@pytest.mark.parametrize("model_type", ["qwen2", "llama", "gpt2", "gemma2", "cohere"])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("number_format", FORMATS)
def test_log_probs_are_those_of_a_plain_forward(start, model_type, packed, number_format):
    engine = start(
        path=folder(model_type),
        model={"use_remove_padding": packed},
        temperature=0.7,
        plugin=FSDPConfig(model_dtype=number_format),
    )
    found = engine.forward(BATCH, {"log_probs"}).batch["log_probs"].unbind()
    # With torch's kernels some versions of transformers leave out the cap of Gemma 2's scores.
    exact = AutoModelForCausalLM.from_pretrained(folder(model_type), dtype=torch.float64, attn_implementation="eager")
    rtol = FORMATS[number_format]
    for row, log_probs in zip(ROWS, found, strict=True):
        with torch.no_grad():
            expected, _ = slow_log_probs(lambda _, ids: exact(ids[None], use_cache=False).logits[0], {}, row, 0.7)
        torch.testing.assert_close(log_probs.double(), expected, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("model_type", ["mamba", "opt"])
def test_models_that_cannot_be_packed_train_padded(start, model_type):
    with pytest.raises(ConfigError, match=rf"'{model_type}' .*Set model.use_remove_padding=False"):
        start(path=folder(model_type))
    engine = start(path=folder(model_type), model={"use_remove_padding": False})
    plain = AutoModelForCausalLM.from_pretrained(folder(model_type))
    found = engine.forward(BATCH, {"log_probs"}).batch["log_probs"].unbind()
    for row, log_probs in zip(ROWS, found, strict=True):
        with torch.no_grad():
            expected, _ = slow_log_probs(lambda _, ids: plain(ids[None], use_cache=False).logits[0], {}, row, 1.0)
        torch.testing.assert_close(log_probs, expected, rtol=1e-5, atol=1e-5)


def test_models_whose_files_are_no_pieces_of_what_is_in_memory_are_refused(start, monkeypatch):
    monkeypatch.setattr("rl_engine.file_form._CHAINS", ())
    with pytest.raises(ConfigError, match=r"'qwen3_moe' keeps .*experts.gate_up_proj in memory in another form"):
        start(path=folder("qwen3_moe"))


def test_a_model_that_is_not_there(start, tmp_path):
    with pytest.raises(ConfigError, match=r"There is no such folder .*Hub cache .*Give the path of a folder"):
        start(path=str(tmp_path / "absent"))
    assert not dist.is_initialized()


# Updates.

CUTS = [
    {"micro_batch_size": 1},
    {"micro_batch_size": 2},
    {"max_tokens": 12},
    {"micro_batch_size": 2, "plugin": FSDPConfig(use_no_sync_for_gradient_accumulation=True)},
    {"micro_batch_size": 2, "plugin": FSDPConfig(reshard_after_forward=False)},
    {"max_tokens": 12, "model": {"use_remove_padding": False}},
    {"micro_batch_size": 3, "model": {"use_remove_padding": False, "enable_gradient_checkpointing": True}},
    {"model": {"enable_gradient_checkpointing": True}},
]


@pytest.fixture(scope="module")
def whole():
    """Weights and norms after two steps on the whole batch in one packed pass."""
    engine = FSDPEngine(EngineRole.POLICY, SimpleNamespace(path=folder()), EngineConfig(optim=SGD), CONTEXT)
    engine.initialize()
    results = update(engine)
    after = weights(engine)
    engine.close()
    return after, [result.grad_norm for result in results]


@pytest.mark.parametrize("cut", CUTS)
def test_an_update_does_not_depend_on_how_it_was_cut(start, whole, cut):
    engine = start(**cut)
    norms = [result.grad_norm for result in update(engine)]
    assert norms == pytest.approx(whole[1], rel=1e-5)
    assert_same(weights(engine), whole[0])


def test_a_step_that_is_not_finite_is_counted(start):
    engine = start(optim=ADAM)
    before = weights(engine)
    engine.forward_backward(as_batch(ROWS, marked=[1]), ExplodingLoss(num_tokens(ROWS)))
    assert engine.optimizer_step().skipped
    assert engine.skipped_steps == 1
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights(engine).items())
    assert not update(engine, 1)[0].skipped
    assert engine.skipped_steps == 1


def test_dropout_that_was_asked_for_draws_from_the_engines_own_stream(start):
    path = folder("gpt2", resid_pdrop=0.3)
    asked = {"override_config": {"resid_pdrop": 0.3}}

    def norms(engine, disturb=False):
        found = []
        for _ in range(2):
            if disturb:
                torch.rand(7)
            found += [result.grad_norm for result in update(engine, 1)]
        return found

    expected = norms(start(path=path, model=asked))
    assert norms(start(path=path, model=asked), disturb=True) == expected
    assert norms(start(path=path, model=asked, seed=2)) != expected
    # Without the override, training draws nothing.
    assert norms(start(path=path)) == norms(start(path=path, seed=2))


# Precision.


def test_mixed_precision_keeps_wide_weights_and_streams_narrow_ones(start):
    engine = start(plugin=FSDPConfig(dtype="bf16"), optim=replace(SGD, lr=1e-4))
    before = [engine.local(parameter).clone() for parameter in engine.parameters()]
    assert {parameter.dtype for parameter in engine.parameters()} == {torch.float32}
    update(engine, 1)
    after = [engine.local(parameter) for parameter in engine.parameters()]
    # A step too small for bfloat16 is not lost.
    assert any(
        not torch.equal(new, old) and torch.equal(new.bfloat16(), old.bfloat16())
        for new, old in zip(after, before, strict=True)
    )
    assert {tensor.dtype for tensor in weights(engine).values()} == {torch.bfloat16}
    assert {spec.dtype for spec in engine.weight_manifest().entries} == {"bfloat16"}


def test_mixed_precision_is_near_full_precision(start):
    wide, narrow = start(), start(plugin=FSDPConfig(dtype="bfloat16"))
    columns = [engine.forward(BATCH, {"log_probs"}).batch["log_probs"] for engine in (wide, narrow)]
    assert columns[1].dtype == torch.float32
    assert float((columns[0].values() - columns[1].values()).abs().mean()) < 0.15
    norms = [update(engine, 1)[0].grad_norm for engine in (wide, narrow)]
    assert norms[1] == pytest.approx(norms[0], rel=0.05)


def test_float64_throughout(start):
    engine = start(plugin=FSDPConfig(model_dtype="float64"))
    assert engine.forward(BATCH, {"log_probs"}).batch["log_probs"].dtype == torch.float64


# Sharding. One worker is sharded only where its types differ; tests with more of them are in test_ranks.py.


def test_one_worker_with_one_type_is_left_whole(start):
    engine = start()
    assert list(sharded_parts(engine.module("test"))) == []
    assert not any(isinstance(parameter, DTensor) for parameter in engine.parameters())


def test_every_block_is_sharded_on_its_own(start):
    engine = start(plugin=FSDPConfig(dtype="bfloat16"))
    names = [type(part).__name__ for part in sharded_parts(engine.module("test"))]
    assert names == ["FSDPPolicyModel", "FSDPQwen2DecoderLayer", "FSDPQwen2DecoderLayer"]


def test_blocks_may_be_chosen_by_class(start):
    policy = WrapPolicyConfig(transformer_layer_cls_to_wrap=["Qwen2MLP"])
    engine = start(plugin=FSDPConfig(dtype="bfloat16", wrap_policy=policy))
    names = [type(part).__name__ for part in sharded_parts(engine.module("test"))]
    assert names == ["FSDPPolicyModel", "FSDPQwen2MLP", "FSDPQwen2MLP"]
    with pytest.raises(ConfigError, match=r"\['GPT2Block'\], but the model has no such block; .*Qwen2DecoderLayer"):
        start(plugin=FSDPConfig(wrap_policy=WrapPolicyConfig(transformer_layer_cls_to_wrap=["GPT2Block"])))


# Life.


def test_engines_share_a_process_and_its_group(start):
    policy, critic = start(), start(EngineRole.VALUE)
    policy.close()
    critic.forward(BATCH, {"values"})
    critic.close()
    assert not dist.is_initialized()


def test_a_second_initialize_is_refused(start):
    with pytest.raises(RlError, match="initialize was called twice"):
        start().initialize()


def test_a_failed_start_leaves_nothing_open(start):
    with pytest.raises(ConfigError, match="lr_scheduler_type"):
        start(optim=replace(SGD, lr_scheduler_type="wsd"))
    with pytest.raises(ConfigError, match="AdanW"):
        start(optim=replace(SGD, optimizer="AdanW"))
    assert not dist.is_initialized()


class EngineWorker(Worker):
    """A worker as the local runtime hosts it."""

    def __init__(self, context, path):
        super().__init__(context)
        self.engine = FSDPEngine(EngineRole.POLICY, SimpleNamespace(path=path), EngineConfig(), context)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self):
        self.engine.initialize()
        return dist.get_world_size()

    def close(self):
        self.engine.close()


def test_one_local_worker_trains_and_leaves_no_process_group():
    group = LocalWorkerGroup(EngineWorker, 1, folder())
    assert group.init_model() == [1]
    group.shutdown()
    assert not dist.is_initialized()


def test_several_local_workers_are_told_to_use_processes():
    group = LocalWorkerGroup(EngineWorker, 2, folder(), deadline_s=30)
    with pytest.raises(RlError, match=r"live in one process.*trainer.runtime=ray"):
        group.init_model()
    group.shutdown()


# Roles.


def test_a_reward_model_scores_like_its_checkpoint(start):
    path = folder(head="sequence_classification")
    engine = start(EngineRole.REWARD, path=path, optim=None)
    plain = AutoModelForSequenceClassification.from_pretrained(path)
    found = engine.forward(BATCH, {"values"}).batch["values"].unbind()
    for row, values in zip(ROWS, found, strict=True):
        if len(values):
            with torch.no_grad():
                assert float(values[-1]) == pytest.approx(float(plain(row.ids[None]).logits), abs=1e-5)


def test_a_reward_model_without_head_is_refused(start):
    with pytest.raises(ConfigError, match="has no score head"):
        start(EngineRole.REWARD, optim=None)


def test_a_reference_holds_parameters_and_nothing_else(start):
    engine = start(EngineRole.REFERENCE, optim=None)
    assert engine.resident() == {EngineState.PARAMETERS}
    assert engine.parameters() == []
    with pytest.raises(RlError, match="gradients, which this engine does not have"):
        engine.forward_backward(BATCH, LOSS)
    with pytest.raises(ConfigError, match="it has no schedule"):
        engine.lr_scheduler_step()


def test_a_loss_that_depends_on_no_output_has_a_backward_pass_all_the_same(start):
    engine = start()

    class Constant(RecordingLoss):
        def __call__(self, outputs, micro_batch):
            return torch.zeros(()), {}

    engine.forward_backward(BATCH, Constant(frozenset({"log_probs"})))
    assert len(engine.gradients()) == len(engine.parameters())
    assert engine.optimizer_step().grad_norm == 0.0


# Weights and exports.


def checkpoint_names(path):
    return set(AutoModelForCausalLM.from_pretrained(path).state_dict())


@pytest.mark.parametrize("model_type", ["qwen2", "gpt2"])
@pytest.mark.parametrize("tied", [False, True])
def test_the_manifest_covers_the_checkpoint(start, model_type, tied):
    path = folder(model_type, tie_word_embeddings=tied)
    manifest = start(path=path).weight_manifest()
    assert set(manifest.names) == checkpoint_names(path)
    twins = [(spec.name, spec.tied_to) for spec in manifest.entries if spec.tied_to]
    embedding = {"qwen2": "model.embed_tokens.weight", "gpt2": "transformer.wte.weight"}[model_type]
    assert twins == ([("lm_head.weight", embedding)] if tied else [])


@pytest.mark.parametrize("tied", [False, True])
def test_an_export_is_the_same_model_in_plain_transformers(start, tmp_path, tied):
    path = folder(tie_word_embeddings=tied)
    engine = start(path=path, optim=replace(SGD, lr=0.01))
    update(engine)
    engine.export_hf(tmp_path)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert plain.dtype == torch.float32
    assert (plain.lm_head.weight is plain.model.embed_tokens.weight) == tied
    found = engine.forward(BATCH, {"log_probs"}).batch["log_probs"].unbind()
    for row, log_probs in zip(ROWS, found, strict=True):
        with torch.no_grad():
            expected, _ = slow_log_probs(lambda _, ids: plain(ids[None], use_cache=False).logits[0], {}, row, 1.0)
        torch.testing.assert_close(log_probs, expected, rtol=1e-5, atol=1e-5)
    assert AutoTokenizer.from_pretrained(tmp_path).eos_token == "<|im_end|>"


def test_the_weights_of_an_untrained_export_are_the_originals(start, tmp_path):
    start().export_hf(tmp_path)
    exported = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    original = AutoModelForCausalLM.from_pretrained(folder()).state_dict()
    assert all(torch.equal(exported[name], tensor) for name, tensor in original.items())


def test_a_critic_is_exported_as_a_classifier(start, tmp_path):
    engine = start(EngineRole.VALUE)
    update(engine, loss=ValueLoss(num_tokens(ROWS)))
    engine.export_hf(tmp_path)
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    found = engine.forward(BATCH, {"values"}).batch["values"].unbind()
    for row, values in zip(ROWS, found, strict=True):
        if len(values):
            with torch.no_grad():
                expected = float(plain(row.ids[None, :-1]).logits)
            assert abs(expected) > 0
            assert float(values[-1]) == pytest.approx(expected, abs=1e-5)
    again = start(EngineRole.VALUE, path=str(tmp_path))
    torch.testing.assert_close(
        again.forward(BATCH, {"values"}).batch["values"].values(),
        engine.forward(BATCH, {"values"}).batch["values"].values(),
        rtol=0,
        atol=0,
    )


def test_dropout_is_in_the_exported_configuration_as_it_was(start, tmp_path):
    start(path=folder("gpt2", resid_pdrop=0.3)).export_hf(tmp_path)
    assert AutoModelForCausalLM.from_pretrained(tmp_path).config.resid_pdrop == 0.3
