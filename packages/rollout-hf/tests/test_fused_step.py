"""Steps in few operations come to what the model comes to."""

from __future__ import annotations

import pytest
import torch
from rl_rollout_hf.cache import Need, RowCache
from rl_rollout_hf.fused_step import FusedStep
from rl_rollout_hf.runner import Runner, fill_batches
from rl_testing.models import tiny_model

CPU = torch.device("cpu")
PROMPTS = [(5, 9, 2, 40, 41, 8, 1), (7,), (3, 3, 3), (11, 250, 17, 6)]
KNOWN = ["llama", "mistral", "qwen2", "qwen3"]


def log_probs(runner: Runner, num_steps: int = 5) -> torch.Tensor:
    """[steps, B, V] of greedy steps after the prompts, the same tokens whatever the logits are."""
    cache = RowCache(runner.layer_shapes(), runner.dtype, CPU)
    longest = max(map(len, PROMPTS)) + num_steps
    cache.fit(Need(len(PROMPTS), longest, len(PROMPTS), longest), 1 << 20, kept_rows=0, kept_length=0)
    for batch in fill_batches([prompt[:-1] for prompt in PROMPTS], 0):
        runner.fill(cache, batch)
    tokens = torch.tensor([prompt[-1] for prompt in PROMPTS])
    found = []
    for number in range(num_steps):
        positions = torch.tensor([len(prompt) - 1 + number for prompt in PROMPTS])
        with torch.inference_mode():
            logits = runner.step(cache, tokens, positions, int(positions.max()) + 1)
        found.append(torch.log_softmax(logits, dim=-1))
        tokens = (tokens * 31 + 7) % 250
    return torch.stack(found)


@pytest.mark.parametrize("model_type", KNOWN)
@pytest.mark.parametrize("fields", [{}, {"tie_word_embeddings": True}, {"num_heads": 4, "num_key_value_heads": 4}])
def test_the_same_as_the_model(model_type, fields):
    runner = Runner(tiny_model(model_type, **fields), CPU)
    expected = log_probs(runner)
    runner.require_faithful_cache()
    assert runner.steps_are_fused
    torch.testing.assert_close(log_probs(runner), expected, rtol=0, atol=1e-4)


def test_the_model_and_the_step_share_their_weights():
    model = tiny_model("qwen2")
    other = dict(tiny_model("qwen2", seed=1).named_parameters())
    runner = Runner(model, CPU)
    runner.require_faithful_cache()
    before = log_probs(runner)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(other[name])
    after = log_probs(runner)
    fresh = Runner(tiny_model("qwen2", seed=1), CPU)
    assert not torch.allclose(after, before)
    torch.testing.assert_close(after, log_probs(fresh), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("model_type", "dtype"),
    [("gpt2", torch.float32), ("gemma", torch.float32), ("qwen2", torch.bfloat16), ("qwen2", torch.float64)],
)
def test_other_models_are_stepped_as_they_are(model_type, dtype):
    model = tiny_model(model_type, dtype=dtype)
    assert FusedStep.of(model) is None
    runner = Runner(model, CPU)
    runner.require_faithful_cache()
    assert not runner.steps_are_fused


def test_a_step_that_comes_to_something_else_is_not_used(monkeypatch):
    model = tiny_model("qwen2")
    expected = log_probs(Runner(model, CPU))
    step = FusedStep.__call__
    monkeypatch.setattr(FusedStep, "__call__", lambda *arguments: step(*arguments) + torch.arange(300) / 100)
    runner = Runner(model, CPU)
    runner.require_faithful_cache()
    assert not runner.steps_are_fused
    torch.testing.assert_close(log_probs(runner), expected)
