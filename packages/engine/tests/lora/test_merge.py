"""Bug B92: a merge that wrote the base model, because adapters were lost on their way or their factor was 0."""

import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model
from rl_core.contracts.weights import WeightSpec
from rl_engine.lora.adapter import Adapter
from rl_engine.lora.merge import gather_merged, merged_weight
from rl_engine.lora.settings import LoraSettings
from torch import nn

WEIGHT, A, B = torch.eye(2), torch.tensor([[3.0, -1.0]]), torch.tensor([[1.0], [2.0]])
MERGED = torch.tensor([[7.0, -2.0], [12.0, -3.0]])


def test_the_hand_computed_merge():
    assert torch.equal(merged_weight(WEIGHT, A, B, 2.0), MERGED)


def test_the_base_weight_is_not_changed():
    weight = WEIGHT.clone()
    merged_weight(weight, A, B, 2.0)
    assert torch.equal(merged_weight(weight, A, B, 2.0), MERGED)
    assert torch.equal(weight, WEIGHT)


def test_a_layer_that_keeps_its_weight_the_other_way_round():
    weight = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert torch.equal(merged_weight(weight.T, A, B, 2.0, transposed=True), merged_weight(weight, A, B, 2.0).T)


def test_it_is_added_up_in_float32_and_rounded_once():
    weight, a, b = torch.ones(1, 1).bfloat16(), torch.full((1, 1), 2.0**-9), torch.ones(1, 1)
    assert merged_weight(weight, a, b, 4.0).dtype == torch.bfloat16
    assert merged_weight(weight, a, b, 4.0).item() == 1 + 2.0**-7
    assert merged_weight(weight, a, b, 0.5).item() == 1.0


@pytest.fixture
def model():
    """Two layers; the first with the adapter of the bug report, r = 1 and alpha = 2."""
    model = nn.ModuleDict({"first": nn.Linear(2, 2, bias=False), "second": nn.Linear(2, 2, bias=False)})
    inject_adapter_in_model(LoraConfig(r=1, lora_alpha=2, target_modules=["first"]), model)
    with torch.no_grad():
        model["first"].base_layer.weight.copy_(WEIGHT)
        model["first"].lora_A["default"].weight.copy_(A)
        model["first"].lora_B["default"].weight.copy_(B)
    return model


def test_the_stream_merges_what_has_an_adapter_in_one_exchange(model):
    adapter = Adapter(LoraSettings(rank=1, alpha=2.0), {"first": model["first"]}, {})
    tensors = {"first.weight": model["first"].base_layer.weight, "second.weight": model["second"].weight}
    specs = [WeightSpec(name=name, shape=(2, 2), dtype="float32") for name in ("second.weight", "first.weight")]
    exchanges = []

    def gather(specs, tensors):
        exchanges.append([spec.shape for spec in specs])
        return list(tensors)

    for _ in range(2):
        with torch.no_grad():
            second, first = gather_merged(gather, adapter, specs, tensors)
        assert torch.equal(first, MERGED)
        assert second is model["second"].weight
    assert exchanges == [[(2, 2), (2, 2), (1, 2), (2, 1)]] * 2
    assert torch.equal(model["first"].base_layer.weight, WEIGHT)
    inputs = torch.tensor([[0.5, -3.0]])
    torch.testing.assert_close(model["first"](inputs), inputs @ MERGED.T)
