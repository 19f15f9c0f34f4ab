"""Predictions beside what was measured: benchmarks/results/fsdp_gpu.md, one H200, torch 2.11."""

from dataclasses import replace

import pytest
import torch
from rl_core.algorithms.logprobs import DEFAULT_CHUNK_SIZE
from rl_engine import memory_model
from rl_engine.memory_model import TrainingShape, activation_bytes, training_memory
from rl_engine.model_shape import ModelShape, shape_of
from rl_engine.token_model import COMPILED_CHUNK_SIZE
from transformers import Qwen2Config
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RotaryEmbedding

GIB = 2**30


def qwen(hidden, inner, layers, heads, kv_heads=2):
    return shape_of(
        {
            "model_type": "qwen2",
            "hidden_size": hidden,
            "intermediate_size": inner,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "tie_word_embeddings": True,
            "vocab_size": 151_936,
        }
    )


HALF, ONE_AND_A_HALF = qwen(896, 4864, 24, 14), qwen(1536, 8960, 28, 12)
MEASURED = {
    # one pass of 32,768 tokens in a step
    "0.5B, not compiled": (HALF, {"compiled": False, "recomputes": False, "accumulates": False}, 50.4),
    "0.5B": (HALF, {"recomputes": False, "accumulates": False}, 42.1),
    "1.5B, recomputed, not compiled": (ONE_AND_A_HALF, {"compiled": False, "accumulates": False}, 27.6),
    "1.5B, recomputed": (ONE_AND_A_HALF, {"accumulates": False}, 27.5),
    "1.5B": (ONE_AND_A_HALF, {"recomputes": False, "accumulates": False}, 87.5),
    # six passes of at most 32,768 tokens; taken before the logits of 4,096 tokens existed at a time
    "peers, recomputed": (HALF, {"chunk": 1024}, 11.2),
    "peers, blocks not compiled": (HALF, {"chunk": 1024, "compiled": False, "recomputes": False}, 56.2),
}


@pytest.mark.parametrize("case", MEASURED)
def test_measured_peaks_are_met_within_15_percent(case):
    model, options, measured = MEASURED[case]
    found = training_memory(TrainingShape(model=model, update_tokens=32_768, **options))
    predicted = (found.parameters + found.gradients + found.optimizer + found.update) / GIB
    assert predicted == pytest.approx(measured, rel=0.15)


def test_chunks_are_those_of_the_engine():
    assert (DEFAULT_CHUNK_SIZE, COMPILED_CHUNK_SIZE) == (memory_model.EAGER_CHUNK, memory_model.COMPILED_CHUNK)


@pytest.mark.parametrize("compiled", [False, True])
def test_activations_of_a_block_are_those_that_it_keeps(compiled):
    """What autograd saves in transformers' own block, as torch's partitioner cuts it where it is compiled."""
    hidden, inner, heads, kv_heads, tokens = 128, 352, 4, 2, 64
    config = Qwen2Config(
        hidden_size=hidden,
        intermediate_size=inner,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=99,
    )
    config._attn_implementation = "sdpa"
    block = Qwen2DecoderLayer(config, 0).to(torch.bfloat16)
    places = Qwen2RotaryEmbedding(config)(
        torch.zeros(1, tokens, hidden, dtype=torch.bfloat16), torch.arange(tokens)[None]
    )
    # Weights are not activations, and one table of rotations serves all blocks.
    others = {tensor.untyped_storage().data_ptr() for tensor in (*block.parameters(), *places)}
    saved = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in others:
            saved[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    states = torch.randn(1, tokens, hidden, dtype=torch.bfloat16, requires_grad=True)
    if compiled:
        block.compile(backend="aot_eager_decomp_partition")
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        block(states, position_embeddings=places)
    measured = sum(size for size, _ in saved.values()) / tokens
    shape = replace(HALF, hidden=hidden, inner=inner, heads=heads, kv_heads=kv_heads, head_dim=hidden // heads)
    assert activation_bytes(TrainingShape(model=shape, compiled=compiled)) == pytest.approx(measured, rel=0.03)


SMALL = ModelShape(
    hidden=8, inner=16, layers=3, heads=2, kv_heads=1, head_dim=4, vocabulary=10, parameters=1_000, is_tied=True
)


def memory(**options):
    return training_memory(TrainingShape(model=SMALL, **{"update_tokens": 100, "forward_tokens": 100, **options}))


def test_states_by_hand():
    # 1,000 float32 numbers, two more each for Adam, over 4 workers
    found = memory(shards=4)
    assert (found.parameters, found.gradients, found.optimizer) == (1000, 1000, 2000)


def test_a_frozen_role_has_weights_alone():
    found = memory(update_tokens=0)
    assert (found.parameters, found.gradients, found.optimizer, found.update) == (4000, 0, 0, 0)
    assert found.forward > 0


def test_adapters_leave_the_model_in_the_format_of_the_computation():
    found = memory(adapter_parameters=50)
    assert (found.parameters, found.gradients, found.optimizer) == (1000 * 2 + 50 * 4, 200, 400)


def test_a_value_model_has_one_row_in_the_place_of_its_output_layer():
    # tied: the embedding stays and the row comes
    assert memory(scores_tokens=False).parameters == (1000 + 8) * 4
    wide = TrainingShape(model=replace(SMALL, vocabulary=1000, parameters=9_000), update_tokens=100)
    assert training_memory(replace(wide, scores_tokens=False)).update < training_memory(wide).update / 2


def test_offloaded_states_are_not_on_the_device():
    found = memory(is_offloaded=True)
    assert (found.parameters, found.gradients, found.optimizer) == (0, 0, 0)
    assert found.update > 0


def peak(**options):
    found = memory(**options)
    return found.parameters + found.gradients + found.optimizer + found.update


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ({"update_tokens": 100}, {"update_tokens": 200}),
        ({"recomputes": True}, {"recomputes": False}),
        ({"shards": 4}, {"shards": 1}),
        ({"shards": 2, "kept_share": 0.0}, {"shards": 2, "kept_share": 1.0}),
        ({"keeps_gradients_whole": False}, {"keeps_gradients_whole": True}),
        ({"optimizer_numbers": 0}, {"optimizer_numbers": 2}),
    ],
)
def test_what_saves_memory(less, more):
    assert peak(**less) < peak(**more)
