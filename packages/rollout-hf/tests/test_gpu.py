"""What only a GPU can show: the same tokens from other kernels, memory that is really given back, and running out of it."""

from __future__ import annotations

import pytest
import torch
from rl_core.contracts.rollout import RolloutState
from rl_core.errors import RlError
from rl_testing.contracts.replica import ask

pytestmark = pytest.mark.gpu

GPU = "cuda:0"
PROMPTS = ((5, 3, 9, 4), (7,), (2, 8, 6), tuple(range(10, 40)), (11, 10, 12, 13, 14, 15), (9, 8), (1, 1, 1, 1, 1))


def crowd(**sampling):
    return [ask(prompt, name=f"r{row}", seed=row, **sampling) for row, prompt in enumerate(PROMPTS)]


def bits(outputs):
    return [(output.token_ids, output.log_probs) for output in outputs]


@pytest.mark.parametrize("model_type", ["qwen2", "llama", "gpt2"])
def test_tokens_are_those_of_the_cpu_and_repeat_to_the_bit(serve, make_policy, model_type):
    policy = make_policy(model_type)
    requests = crowd(temperature=0.7, max_tokens=40, ignore_eos=True)
    expected = serve(policy).outputs(*requests)
    replica = serve(policy, device=GPU, dtype="float32", max_num_seqs=3)
    found = replica.outputs(*requests)
    for output, reference in zip(found, expected, strict=True):
        assert output.token_ids == reference.token_ids
        assert output.log_probs == pytest.approx(reference.log_probs, abs=1e-4)
    assert bits(replica.outputs(*requests)) == bits(found)


def test_the_default_type_is_bfloat16(serve, engine_of):
    replica = serve(device=GPU)
    assert {tensor.dtype for tensor in engine_of(replica)._parts.device.weights.tensors.values()} == {torch.bfloat16}
    assert len(replica.output(ask(PROMPTS[0], max_tokens=8, ignore_eos=True)).token_ids) == 8


@pytest.mark.parametrize("level", [1, 2])
def test_sleeping_gives_device_memory_back(serve, level):
    before = torch.cuda.memory_allocated()
    replica = serve(device=GPU)
    request = ask(PROMPTS[0], seed=3, max_tokens=20, ignore_eos=True)
    first = replica.output(request)
    assert torch.cuda.memory_allocated() > before + 100_000
    replica.on_all(lambda engine: engine.sleep(level))
    # A few kilobytes of positions are computed once and stay.
    assert torch.cuda.memory_allocated() < before + 20_000
    replica.on_all(lambda engine: engine.wake({RolloutState.WEIGHTS}))
    if level == 2:
        replica.sync(1)
    replica.on_all(lambda engine: engine.wake({RolloutState.KV_CACHE}))
    assert bits([replica.output(request)]) == bits([first])


def test_running_out_of_memory_names_the_keys_and_is_over(serve):
    replica = serve(device=GPU, max_model_len=8192, max_num_seqs=256)
    request = ask(PROMPTS[0], seed=3, max_tokens=20, ignore_eos=True)
    first = replica.output(request)
    torch.cuda.empty_cache()
    # 64 rows of 8,192 tokens need 128 MiB.
    hog = torch.empty(torch.cuda.mem_get_info()[0] - 48 * 2**20, dtype=torch.uint8, device=GPU)
    many = [ask(PROMPTS[3], name=str(seed), seed=seed, max_tokens=8000, ignore_eos=True) for seed in range(64)]
    outcomes = replica.generate(*many)
    del hog
    torch.cuda.empty_cache()
    assert all(isinstance(outcome, RlError) for outcome in outcomes)
    assert "gpu_memory_utilization" in str(outcomes[0])
    assert bits([replica.output(request)]) == bits([first])
