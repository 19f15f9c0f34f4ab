import subprocess
import sys

import pytest
from rl_backend_fsdp.config import FSDPConfig
from rl_backend_fsdp.memory import predict_memory, training_shape
from rl_core.config.memory_question import TrainingMemoryQuestion
from rl_core.config.optim import OptimConfig
from rl_core.plugins import get_registry
from rl_engine.memory_model import adapter_parameters
from rl_engine.model_shape import ModelShape, read_shape
from rl_engine.models import load_causal_lm
from rl_testing.models import save_tiny_model

MODEL = ModelShape(hidden=64, inner=128, layers=4, heads=8, kv_heads=2, head_dim=8, vocabulary=1000, parameters=200_000)


class Section:
    def __init__(self, path="m", **more):
        self.path = str(path)
        self.__dict__.update(more)


def shape(plugin=None, *, section=None, **more):
    options = {"role": "policy", "optim": OptimConfig(), "update_tokens": 100, "forward_tokens": 50, **more}
    return training_shape(TrainingMemoryQuestion(model=section or Section(), plugin=plugin, **options), MODEL)


def test_defaults_are_the_engines():
    found = shape(num_workers=4)
    assert (found.shards, found.weight_bytes, found.compute_bytes, found.reduce_bytes) == (4, 4, 2, 4)
    assert (found.recomputes, found.compiled, found.gathers, found.kept_share) == (True, True, True, 0.0)


@pytest.mark.parametrize(("size", "workers", "shards"), [(-1, 8, 8), (2, 8, 2), (8, 2, 2)])
def test_a_copy_is_shared_by_so_many(size, workers, shards):
    assert shape(FSDPConfig(fsdp_size=size), num_workers=workers).shards == shards


@pytest.mark.parametrize(("reshard", "share"), [(True, 0.0), (False, 1.0), (2, 0.5), (4, 0.0)])
def test_gathered_blocks_are_kept(reshard, share):
    assert shape(FSDPConfig(reshard_after_forward=reshard), num_workers=4).kept_share == share


def test_one_worker_in_one_format_gathers_nothing():
    assert not shape(FSDPConfig(model_dtype="bf16")).gathers
    assert shape(FSDPConfig(model_dtype="bf16"), num_workers=2).gathers
    assert shape(FSDPConfig(model_dtype="bf16", offload_policy=True)).gathers


def test_the_cpu_computes_in_the_weights_format_and_never_compiles():
    found = shape(is_gpu=False)
    assert (found.compute_bytes, found.compiled) == (4, False)


@pytest.mark.parametrize(
    ("role", "scores"), [("policy", True), ("reference", True), ("value", False), ("reward", False)]
)
def test_roles_with_an_output_layer(role, scores):
    assert shape(role=role).scores_tokens is scores


def test_adapters_belong_to_trained_roles():
    section = Section(lora_rank=8)
    # query, output: 64+64; key, value: 64+16; gate, up, down: 64+128
    assert adapter_parameters(MODEL, 8) == 8 * 4 * (2 * 128 + 2 * 80 + 3 * 192)
    assert shape(section=section).adapter_parameters == adapter_parameters(MODEL, 8)
    assert shape(section=section, role="reference", optim=None).adapter_parameters == 0


@pytest.mark.parametrize(
    ("optim", "numbers", "fused"),
    [
        (OptimConfig(), 2, True),
        (OptimConfig(optimizer="SGD"), 0, False),
        (OptimConfig(optimizer="SGD", override_optimizer_config={"momentum": 0.9}), 1, False),
    ],
)
def test_optimizers(optim, numbers, fused):
    found = shape(optim=optim)
    assert (found.optimizer_numbers, found.is_fused) == (numbers, fused)


def test_states_are_those_of_a_real_model(tmp_path):
    folder = save_tiny_model(tmp_path / "model")
    section = Section(folder)
    question = TrainingMemoryQuestion(
        role="policy", model=section, plugin=FSDPConfig(), optim=OptimConfig(), num_workers=2, update_tokens=64
    )
    import torch

    numbers = sum(parameter.numel() for parameter in load_causal_lm(section, torch.float32).parameters())
    assert read_shape(section).parameters == numbers
    assert predict_memory(question).states == {
        "parameters": 2 * numbers,
        "gradients": 2 * numbers,
        "optimizer": 4 * numbers,
    }


def test_the_record_names_it():
    assert get_registry().load_memory("backend", "fsdp2") is predict_memory


@pytest.mark.heavy
def test_no_torch_is_loaded():
    code = "import rl_backend_fsdp.memory, sys; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == "[]"
