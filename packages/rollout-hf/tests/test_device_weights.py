from __future__ import annotations

import torch
from rl_rollout_hf.device_weights import DeviceWeights
from rl_rollout_hf.model import named_weights
from rl_testing.models import tiny_model


def sizes(model):
    return sum(tensor.untyped_storage().nbytes() for _, tensor in named_weights(model))


def test_kept_weights_leave_and_come_back_into_the_same_tensors():
    model = tiny_model("qwen2")
    ids = torch.tensor([[1, 2, 3]])
    before, expected = dict(named_weights(model)), model(ids).logits
    memory = DeviceWeights(before.values())
    assert memory.num_bytes == sizes(model) > 0
    memory.release(keep=True)
    assert (sizes(model), memory.is_resident) == (0, False)
    memory.release(keep=True)  # again changes nothing
    memory.take()
    assert memory.is_resident
    assert all(tensor is before[name] for name, tensor in named_weights(model))
    torch.testing.assert_close(model(ids).logits, expected, rtol=0, atol=0)


def test_tied_weights_count_and_move_once():
    model = tiny_model("qwen2", tie_word_embeddings=True)
    memory = DeviceWeights(tensor for _, tensor in named_weights(model))
    assert memory.num_bytes == sum(parameter.numel() for parameter in model.parameters()) * 4
    memory.release(keep=True)
    memory.take()
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_dropped_weights_come_back_as_memory():
    model = tiny_model("qwen2")
    full = sizes(model)
    memory = DeviceWeights(tensor for _, tensor in named_weights(model))
    memory.release(keep=False)
    assert sizes(model) == 0
    memory.take()
    assert sizes(model) == full


def test_what_was_kept_can_still_be_dropped():
    weight = torch.ones(1000)
    memory = DeviceWeights([weight])
    memory.release(keep=True)
    memory.release(keep=False)
    memory.take()
    assert weight.shape == (1000,)
    assert memory._kept is None
