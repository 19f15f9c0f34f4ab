from __future__ import annotations

from types import SimpleNamespace

import pytest
from rl_core.config import RolloutConfig
from rl_core.errors import ConfigError
from rl_rollout_vllm.config import VllmRolloutConfig
from rl_rollout_vllm.settings import (
    EXTENSION,
    Replica,
    adapter_room,
    choose_dtype,
    engine_arguments,
    find_replica,
    longest_sequence,
    require_known,
    require_supported,
    served_adapter,
)


def rollout(own=None, **keys):
    section = RolloutConfig(name="vllm", **keys)
    if own is not None:
        section.vllm = VllmRolloutConfig(**own)
    return section


def model(**keys):
    return SimpleNamespace(**{"path": "m", "trust_remote_code": False, "override_config": {}, **keys})


def arguments(device="cpu", model_keys=None, **keys):
    return engine_arguments(
        model(**(model_keys or {})), rollout(**keys), folder="/m", max_model_len=100, device_type=device
    )


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"data_parallel_size": 2}, "data_parallel_size is 2"),
        ({"expert_parallel_size": 2, "tensor_model_parallel_size": 4}, "expert_parallel_size is 2.*1 or 4"),
        ({"logprobs_mode": "raw_logits"}, "'raw_logits'.*processed_logprobs"),
    ],
)
def test_what_is_not_done_is_refused(keys, named):
    with pytest.raises(ConfigError, match=named):
        require_supported(rollout(**keys))


def test_experts_may_be_spread_over_the_whole_replica():
    require_supported(rollout(expert_parallel_size=4, tensor_model_parallel_size=2, pipeline_model_parallel_size=2))


@pytest.mark.parametrize(
    ("rank", "expected"),
    [(0, Replica(2, 0, 2, 0)), (1, Replica(2, 0, 2, 1)), (2, Replica(2, 1, 2, 0)), (3, Replica(2, 1, 2, 1))],
)
def test_neighbouring_ranks_share_a_replica(rank, expected):
    context = SimpleNamespace(rank=rank, world_size=4)
    assert find_replica(rollout(tensor_model_parallel_size=2), context) == expected


def test_workers_that_do_not_divide_are_refused():
    with pytest.raises(ConfigError, match=r"spans 4 workers \(tensor 2 x pipeline 2 parallel\).*6 workers"):
        find_replica(
            rollout(tensor_model_parallel_size=2, pipeline_model_parallel_size=2), SimpleNamespace(rank=0, world_size=6)
        )


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"max_model_len": 77, "prompt_length": 5, "response_length": 6}, 77),
        ({"prompt_length": 50, "response_length": 60}, 110),
        ({}, 1000),
    ],
)
def test_the_longest_sequence(keys, expected):
    assert longest_sequence(rollout(**keys), 1000) == expected


def test_sequences_longer_than_the_models_positions_are_refused():
    with pytest.raises(ConfigError, match=r"prompt \(600\) and response \(500\).*1100.*1000 positions"):
        longest_sequence(rollout(prompt_length=600, response_length=500), 1000)
    with pytest.raises(ConfigError, match=r"max_model_len \(1001\)"):
        longest_sequence(rollout(max_model_len=1001), 1000)


@pytest.mark.parametrize(
    ("asked", "own", "device", "expected"),
    [
        ("bfloat16", None, "cpu", "float32"),
        ("bfloat16", None, "cuda", "bfloat16"),
        ("bf16", None, "cpu", "float32"),
        ("bfloat16", "bfloat16", "cpu", "bfloat16"),
        ("fp16", None, "cpu", "float16"),
        ("bfloat16", "float32", "cuda", "float32"),
    ],
)
def test_the_default_type_means_float32_on_a_cpu(asked, own, device, expected):
    assert choose_dtype(rollout(dtype=asked, own={"dtype": own}), device) == expected


@pytest.mark.parametrize(
    ("key", "value", "argument", "expected"),
    [
        ("max_num_seqs", 7, "max_num_seqs", 7),
        ("max_num_batched_tokens", 512, "max_num_batched_tokens", 512),
        ("tensor_model_parallel_size", 2, "tensor_parallel_size", 2),
        ("pipeline_model_parallel_size", 2, "pipeline_parallel_size", 2),
        ("enable_chunked_prefill", False, "enable_chunked_prefill", False),
        ("enable_prefix_caching", False, "enable_prefix_caching", False),
        ("enforce_eager", True, "enforce_eager", True),
        ("load_format", "auto", "load_format", "auto"),
        ("logprobs_mode", "raw_logprobs", "logprobs_mode", "raw_logprobs"),
        ("quantization", "fp8", "quantization", "fp8"),
        ("scheduling_policy", "priority", "scheduling_policy", "priority"),
        ("disable_log_stats", False, "disable_log_stats", False),
        ("skip_tokenizer_init", False, "skip_tokenizer_init", False),
        ("gpu_memory_utilization", 0.4, "gpu_memory_utilization", 0.4),
        ("cudagraph_capture_sizes", [1, 8], "cudagraph_capture_sizes", [1, 8]),
        ("free_cache_engine", False, "enable_sleep_mode", False),
    ],
)
def test_every_key_reaches_vllm_by_its_name(key, value, argument, expected):
    assert arguments("cuda")[argument] != expected
    assert arguments("cuda", **{key: value})[argument] == expected


def test_what_a_cpu_cannot_do_is_left_out():
    found = arguments("cpu")
    assert (found["enforce_eager"], found["enable_sleep_mode"]) == (True, False)
    assert not {"gpu_memory_utilization", "cudagraph_capture_sizes"} & set(found)
    assert found["kv_cache_memory_bytes"] == 4 * 2**30


def test_memory_of_the_cache_can_be_given():
    assert arguments("cuda", own={"cache_gib": 0.5})["kv_cache_memory_bytes"] == 2**29
    assert "kv_cache_memory_bytes" not in arguments("cuda")


def test_a_step_has_room_for_every_sequence_and_for_a_whole_prompt_where_it_is_not_cut():
    assert arguments(max_num_batched_tokens=10, max_num_seqs=50)["max_num_batched_tokens"] == 50
    whole = arguments(max_num_batched_tokens=10, max_num_seqs=5, enable_chunked_prefill=False)
    assert whole["max_num_batched_tokens"] == 100


def test_weights_come_from_the_trainer_through_our_extension():
    found = arguments()
    assert (found["load_format"], found["worker_extension_cls"]) == ("dummy", EXTENSION)


def test_engine_kwargs_go_to_vllm():
    found = arguments(engine_kwargs={"vllm": {"block_size": 32, "hf_overrides": {"x": 1}}, "sglang": {"x": 1}})
    assert (found["block_size"], found["hf_overrides"]) == (32, {"x": 1})
    assert "x" not in found


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("tensor_parallel_size", "rollout.tensor_model_parallel_size"),
        ("worker_extension_cls", "weights arrive"),
        ("logprobs_mode", "rollout.logprobs_mode"),
        ("max_model_len", "rollout.max_model_len"),
        ("kv_cache_memory_bytes", "rollout.vllm.cache_gib"),
    ],
)
def test_engine_kwargs_may_not_set_what_has_a_key(name, way_out):
    with pytest.raises(ConfigError, match=rf"engine_kwargs\.vllm\.{name} was given, but .*{way_out}"):
        arguments(engine_kwargs={"vllm": {name: 2}})


def test_model_keys():
    found = arguments(
        model_keys={
            "override_config": {"rope_theta": 7, "attn_implementation": "eager"},
            "tokenizer_path": "t",
            "hf_config_path": "c",
            "trust_remote_code": True,
        }
    )
    assert (found["hf_overrides"], found["tokenizer"], found["hf_config_path"]) == ({"rope_theta": 7}, "t", "c")
    assert found["trust_remote_code"] is True


def test_unknown_arguments_are_named_with_those_that_look_alike():
    require_known({"block_size": 1}, ["block_size"], "1.0")
    with pytest.raises(ConfigError, match=r"vLLM 1.0 .*engine_kwargs\.vllm\.blok_size \(did you mean block_size\?\)"):
        require_known({"blok_size": 1, "seed": 2}, ["block_size", "seed"], "1.0")


@pytest.mark.parametrize(("rank", "room"), [(1, 1), (2, 8), (16, 16), (17, 32), (400, 512)])
def test_an_adapter_has_the_smallest_room_that_holds_it(rank, room):
    assert adapter_room(rank) == room


def test_an_adapter_that_vllm_cannot_serve_is_refused():
    with pytest.raises(ConfigError, match=r"lora_rank is 513, .* rank 512 at most.*lora.merge=true"):
        adapter_room(513)


def test_adapters_are_served_unless_they_come_merged():
    def section(rank, *, merge=False):
        return SimpleNamespace(lora_rank=rank, lora_alpha=16, lora=SimpleNamespace(merge=merge))

    assert served_adapter(section(0)) is None
    assert served_adapter(section(4, merge=True)) is None
    adapter = served_adapter(section(4))
    assert adapter is not None
    assert (adapter.rank, adapter.alpha) == (4, 16.0)
