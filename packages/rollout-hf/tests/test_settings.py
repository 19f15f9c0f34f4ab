from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from rl_core.config import RolloutConfig
from rl_core.errors import ConfigError
from rl_rollout_hf.config import HfRolloutConfig
from rl_rollout_hf.settings import cache_budget, choose_dtype, read_settings, require_supported
from transformers import AutoConfig

CPU, GPU = torch.device("cpu"), torch.device("cuda:0")
MODEL = AutoConfig.for_model("qwen2", max_position_embeddings=1000)


def rollout(own=None, **keys):
    section = RolloutConfig(name="hf", **keys)
    if own is not None:
        section.hf = HfRolloutConfig(**own)
    return section


@pytest.mark.parametrize(
    "key",
    ["tensor_model_parallel_size", "data_parallel_size", "expert_parallel_size", "pipeline_model_parallel_size"],
)
def test_a_replica_is_one_worker(key):
    require_supported(rollout())
    with pytest.raises(ConfigError, match=f"{key} is 2.*rollout.name"):
        require_supported(rollout(**{key: 2}))


@pytest.mark.parametrize(("key", "value"), [("quantization", "fp8"), ("logprobs_mode", "raw_logits")])
def test_what_is_not_done_is_refused(key, value):
    with pytest.raises(ConfigError, match=f"{key} is '{value}'"):
        require_supported(rollout(**{key: value}))


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"max_model_len": 77, "prompt_length": 5, "response_length": 6}, 77),
        ({"prompt_length": 50, "response_length": 60}, 110),
        ({}, 1000),
    ],
)
def test_the_longest_sequence(keys, expected):
    assert read_settings(rollout(**keys), MODEL).max_model_len == expected


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"max_model_len": 1001}, r"max_model_len \(1001\).*1001 tokens.*1000 positions"),
        ({"prompt_length": 600, "response_length": 500}, r"prompt \(600\) and response \(500\).*1100"),
    ],
)
def test_sequences_longer_than_the_models_positions_are_refused(keys, named):
    with pytest.raises(ConfigError, match=named):
        read_settings(rollout(**keys), MODEL)


@pytest.mark.parametrize(
    ("asked", "own", "device", "expected"),
    [
        ("bfloat16", None, CPU, torch.float32),
        ("bfloat16", None, GPU, torch.bfloat16),
        ("bfloat16", "bfloat16", CPU, torch.bfloat16),
        ("float64", None, CPU, torch.float64),
        ("float16", None, CPU, torch.float16),
        ("bfloat16", "float32", GPU, torch.float32),
    ],
)
def test_the_default_type_means_float32_on_a_cpu(asked, own, device, expected):
    assert choose_dtype(rollout(dtype=asked, own={"dtype": own}), device) == expected


def test_an_unknown_type_is_refused():
    with pytest.raises(ConfigError, match="'int4'"):
        choose_dtype(rollout(dtype="int4"), CPU)


def budget(device=CPU, bytes_per_token=1024, weight_bytes=0, **keys):
    settings = read_settings(rollout(max_model_len=100, **keys), MODEL)
    return cache_budget(settings, weight_bytes=weight_bytes, bytes_per_token=bytes_per_token, device=device)


def test_the_cache_of_a_cpu():
    assert budget() == 4 * 2**20
    assert budget(own={"cache_gib": 0.5}) == 2**19


@pytest.mark.parametrize(
    ("free_gib", "share", "expected_gib"),
    [(100, 0.5, 30), (20, 0.5, 18), (100, 0.9, 62)],  # of 80 GiB, 10 of them weights; at most 9/10 of what is free
)
def test_the_cache_of_a_gpu_is_what_the_share_leaves_beside_the_weights(monkeypatch, free_gib, share, expected_gib):
    gib = 2**30
    fake = SimpleNamespace(
        mem_get_info=lambda device: ((free_gib - 5) * gib, 80 * gib),
        memory_reserved=lambda device: 15 * gib,
        memory_allocated=lambda device: 10 * gib,
    )
    monkeypatch.setattr(torch, "cuda", fake)
    found = budget(GPU, bytes_per_token=2**20, weight_bytes=10 * gib, gpu_memory_utilization=share)
    assert found == expected_gib * 1024


def test_a_cache_for_less_than_one_sequence_is_refused():
    with pytest.raises(ConfigError, match=r"rollout.hf.cache_gib.*one sequence of 100 tokens needs"):
        budget(own={"cache_gib": 1e-6})
