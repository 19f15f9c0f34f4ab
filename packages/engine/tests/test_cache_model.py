from types import SimpleNamespace

import pytest
from rl_core.config.memory_question import GENERATE, RolloutMemoryQuestion
from rl_engine.cache_model import CacheShape, estimate, predict_paged
from rl_engine.model_shape import ModelShape

GIB = 2**30
MODEL = ModelShape(
    hidden=64, inner=128, layers=4, heads=8, kv_heads=2, head_dim=8, vocabulary=1000, parameters=2_000_000
)


def test_a_token_by_hand():
    # keys and values, 4 layers, 2 heads of 8 numbers, 2 bytes
    assert CacheShape(model=MODEL).bytes_per_token == 2 * 4 * 2 * 8 * 2


@pytest.mark.parametrize(("slices", "heads"), [(1, 2), (2, 1), (4, 1)])
def test_heads_are_sliced_and_held_more_than_once_where_they_are_few(slices, heads):
    assert CacheShape(model=MODEL, slices=slices).bytes_per_token == 2 * 4 * heads * 8 * 2


def test_stages_share_the_layers_and_the_weights():
    assert CacheShape(model=MODEL, stages=2).bytes_per_token == 2 * 2 * 2 * 8 * 2
    assert CacheShape(model=MODEL, stages=2, slices=2).weights == 1_000_000


def test_windowed_layers_keep_a_window_of_a_sequence():
    from dataclasses import replace

    windowed = replace(MODEL, window=1024, windowed_layers=2)
    # half of the layers keep a quarter of 4,096 tokens
    assert CacheShape(model=windowed, sequence_tokens=4096).bytes_per_token == 256 * (1 - 0.5 * 0.75)


def test_a_cache_in_tokens():
    shape = CacheShape(model=MODEL)
    found = estimate(shape, 1_000_000)
    assert found.cache_tokens == 1_000_000 // 256
    assert found.states == {"weights": 4_000_000, "kv_cache": 1_000_000}
    assert estimate(shape, None).cache_tokens is None
    assert estimate(shape, -5).cache_tokens == 0


def test_a_paged_engine_fills_its_share_of_the_device(tmp_path):
    (tmp_path / "config.json").write_text(
        '{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, '
        '"num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 1000}'
    )
    rollout = SimpleNamespace(
        dtype="bfloat16",
        prompt_length=100,
        response_length=412,
        max_model_len=None,
        tensor_model_parallel_size=1,
        pipeline_model_parallel_size=1,
        max_num_batched_tokens=8192,
        max_num_seqs=256,
        gpu_memory_utilization=0.5,
    )
    question = RolloutMemoryQuestion(
        model=SimpleNamespace(path=str(tmp_path)), rollout=rollout, device_bytes=2 * GIB, beside_bytes=GIB
    )
    found = predict_paged(question)
    assert sum(found.states.values()) + found.work[GENERATE] == GIB
    assert found.cache_tokens == found.states["kv_cache"] // 256
