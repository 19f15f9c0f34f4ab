from __future__ import annotations

import json
import stat

import pytest
import torch
from rl_core.contracts.weights import WeightBucket, WeightManifest, WeightSlice, WeightSpec
from rl_core.errors import WeightSyncError
from rl_core.resharding.digest import bit_sum
from rl_engine.lora.settings import LoraSettings
from rl_rollout_vllm.adapters import AdapterFolder, AdapterIntake, adapter_problems, file_name, layer_of
from safetensors.torch import load_file

Q, BASE = "model.layers.0.self_attn.q_proj", "base_model.model."


def specs(stream: str = "adapter", /, **shapes: tuple[int, ...]) -> WeightManifest:
    entries = tuple(WeightSpec(name=name, shape=shape, dtype="float32") for name, shape in shapes.items())
    return WeightManifest(entries=entries, stream=stream)


HELD = specs("base", **{f"{Q}.weight": (6, 4), "model.norm.weight": (4,)})
FITTING = {f"{BASE}{Q}.lora_A.weight": (2, 4), f"{BASE}{Q}.lora_B.weight": (6, 2)}


@pytest.mark.parametrize(
    "name",
    [
        f"{BASE}{Q}.lora_A.weight",
        f"{Q}.lora_A.weight",
        f"{BASE}{Q}.lora_A.default.weight",
        f"{Q}.lora_A.default.weight",
        f"{BASE}{Q}.base_layer.lora_A.weight",
    ],
)
def test_names_of_every_trainer_mean_the_same(name):
    assert layer_of(name) == (Q, "A")
    assert file_name(name) == f"{BASE}{Q}.lora_A.weight"


@pytest.mark.parametrize("name", [f"{Q}.weight", f"{BASE}{Q}.lora_magnitude_vector.weight", f"{Q}.lora_A.other.weight"])
def test_what_is_no_matrix_is_none(name):
    assert layer_of(name)[1] == ""


def test_a_fitting_adapter_has_no_problems():
    assert list(adapter_problems(specs(**FITTING), HELD, 2)) == []


@pytest.mark.parametrize(
    ("shapes", "rank", "problem"),
    [
        ({**FITTING, f"{BASE}model.layers.7.q_proj.lora_A.weight": (2, 4)}, 2, "model.layers.7.q_proj"),
        ({f"{BASE}{Q}.lora_A.weight": (2, 4)}, 2, f"'{BASE}{Q}.lora_B.weight' is missing"),
        (FITTING, 3, "rank 3 and a layer of shape (6, 4) need (3, 4)"),
        ({**FITTING, f"{BASE}{Q}.lora_B.weight": (7, 2)}, 2, "need (6, 2)"),
        ({**FITTING, f"{BASE}model.norm.lora_A.weight": (2, 4)}, 2, "model.norm"),
        ({**FITTING, f"{BASE}{Q}.weight": (6, 4)}, 2, "no matrix"),
        ({}, 2, "no tensors"),
    ],
)
def test_everything_that_does_not_fit_is_listed(shapes, rank, problem):
    assert problem in "; ".join(adapter_problems(specs(**shapes), HELD, rank))


@pytest.fixture
def folder():
    made = AdapterFolder(LoraSettings(rank=2, alpha=8.0))
    yield made
    made.close()


def test_the_folder_is_private_and_goes_with_its_object(folder):
    path = folder.path
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    folder.close()
    assert not path.exists()


def test_what_came_is_written_as_peft_writes_it(folder):
    tensors = {name: torch.randn(shape) for name, shape in FITTING.items()}
    intake = AdapterIntake(folder, 3, specs(**FITTING), HELD)
    for name, tensor in tensors.items():
        rows = len(tensor) // 2
        for start, stop in ((0, rows), (rows, len(tensor))):
            part = WeightSlice(name, tensor[start:stop].clone(), ((start, stop), (0, tensor.shape[1])))
            intake.put(WeightBucket((part,)))
            part.tensor.fill_(9.0)  # valid during the call only
    intake.write({name: bit_sum(tensor) for name, tensor in tensors.items()})
    stored = load_file(folder.path / "adapter_model.safetensors")
    assert stored.keys() == tensors.keys()
    assert all(torch.equal(stored[name], tensor) for name, tensor in tensors.items())
    config = json.loads((folder.path / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["target_modules"]) == (2, 8, [Q])


def test_an_adapter_that_changed_on_the_way_is_not_written(folder):
    tensors = {name: torch.randn(shape) for name, shape in FITTING.items()}
    intake = AdapterIntake(folder, 3, specs(**FITTING), HELD)
    intake.put(WeightBucket(tuple(WeightSlice(name, tensor) for name, tensor in tensors.items())))
    with pytest.raises(WeightSyncError, match="digest differs"):
        intake.write({name: bit_sum(tensor) + 1 for name, tensor in tensors.items()})
    assert list(folder.path.iterdir()) == []
