import json
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from rl_core.config.memory_question import RolloutMemoryQuestion
from rl_core.plugins import get_registry
from rl_rollout_hf.config import HfRolloutConfig
from rl_rollout_hf.memory import predict_memory
from rl_rollout_hf.settings import Settings, cache_budget

GIB = 2**30
CONFIG = {
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 32_000,
}
PER_TOKEN = 2 * 8 * 2 * 128 * 2


@pytest.fixture
def asked(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))

    def asked(*, hf=None, is_gpu=True, **more):
        rollout = SimpleNamespace(
            dtype="bfloat16",
            prompt_length=512,
            response_length=512,
            max_model_len=None,
            tensor_model_parallel_size=1,
            pipeline_model_parallel_size=1,
            max_num_batched_tokens=8192,
            max_num_seqs=256,
            gpu_memory_utilization=0.5,
            hf=hf or HfRolloutConfig(),
        )
        model = SimpleNamespace(path=str(tmp_path))
        return predict_memory(RolloutMemoryQuestion(model=model, rollout=rollout, is_gpu=is_gpu, **more))

    return asked


@pytest.mark.parametrize(("total", "beside"), [(80 * GIB, 5 * GIB), (24 * GIB, 18 * GIB)])
def test_the_cache_is_that_of_the_engine(asked, total, beside, monkeypatch):
    """The first is bound by its share of the device, the second by what is free."""
    found = asked(device_bytes=total, beside_bytes=beside)
    weights = found.states["weights"]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (total - beside - weights, total))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 0)
    settings = Settings(1024, 256, 8192, True, False, 0.5, None)
    device = torch.device("cuda", 0)
    tokens = cache_budget(settings, weight_bytes=weights, bytes_per_token=PER_TOKEN, device=device)
    assert found.cache_tokens == tokens


def test_what_was_given_counts(asked):
    assert asked(hf=HfRolloutConfig(cache_gib=2.0)).cache_tokens == 2 * GIB // PER_TOKEN


def test_a_cpu_computes_in_float32_and_has_four_gib(asked):
    assert asked(is_gpu=False).cache_tokens == 4 * GIB // (2 * PER_TOKEN)


def test_without_a_device_nothing_is_known_of_the_cache(asked):
    found = asked()
    assert found.cache_tokens is None
    assert list(found.states) == ["weights"]


def test_the_record_names_it():
    assert get_registry().load_memory("rollout", "hf") is predict_memory


@pytest.mark.heavy
def test_no_torch_is_loaded():
    code = "import rl_rollout_hf.memory, sys; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == "[]"
