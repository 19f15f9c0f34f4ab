import pytest
import torch
from rl_core.algorithms.logprobs import token_entropy, token_log_probs, token_sum_pi_squared
from rl_core.errors import ConfigError
from rl_engine.outputs import find_transform, identity, logit_transforms, score_tokens
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Cohere2Config, Gemma2Config, GraniteConfig, Qwen2Config

N, H, V = 23, 8, 50


class LargestTable(TorchDispatchMode):
    """Notes the most rows of any tensor whose last dimension is the vocabulary, the transposed weight aside."""

    def __init__(self):
        super().__init__()
        self.rows = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, torch.Tensor) and tensor.dim() and tensor.shape[-1] == V and tensor.numel() != H * V:
                self.rows = max(self.rows, tensor.numel() // V)
        return out


def make(dtype=torch.float64, bias=False):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(N, H, generator=generator, dtype=dtype).requires_grad_()
    head = nn.Linear(H, V, bias=bias, dtype=dtype)
    with torch.no_grad():
        head.weight.copy_(torch.randn(V, H, generator=generator, dtype=dtype))
    tokens = torch.randint(V, (N,), generator=generator)
    return hidden, head, tokens, generator


def capped(logits):
    return torch.tanh(logits / 3) * 3


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("transform", [identity, capped])
@pytest.mark.parametrize("chunk_size", [1, 5, 23, 1000])
def test_numbers_and_gradients_are_those_of_the_whole_table(chunk_size, transform, bias):
    hidden, head, tokens, generator = make(bias=bias)
    weights = [torch.randn(N, generator=generator, dtype=torch.float64) for _ in range(2)]
    log_probs, entropy, _ = score_tokens(
        hidden, head, tokens, transform=transform, temperature=0.7, chunk_size=chunk_size
    )
    table = transform(head(hidden))
    expected = token_log_probs(table, tokens, 0.7), token_entropy(table, 0.7)
    torch.testing.assert_close((log_probs, entropy), expected, rtol=1e-12, atol=1e-12)
    leaves = [hidden, *head.parameters()]
    found = torch.autograd.grad((log_probs, entropy), leaves, weights)
    torch.testing.assert_close(found, torch.autograd.grad(expected, leaves, weights), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("transform", [identity, capped])
def test_log_probs_are_the_same_to_the_bit_without_the_entropy(transform):
    hidden, head, tokens, _ = make()
    both, entropy, _ = score_tokens(hidden, head, tokens, transform=transform, temperature=0.7, chunk_size=5)
    alone, missing, _ = score_tokens(
        hidden, head, tokens, transform=transform, temperature=0.7, chunk_size=5, with_entropy=False
    )
    assert entropy is not None
    assert missing is None
    assert torch.equal(both, alone)
    leaves = [hidden, head.weight]
    expected = torch.autograd.grad(token_log_probs(transform(head(hidden)), tokens, 0.7).square().sum(), leaves)
    torch.testing.assert_close(torch.autograd.grad(alone.square().sum(), leaves), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("transform", [identity, capped])
@pytest.mark.parametrize("chunk_size", [1, 5, 1000])
def test_the_sum_of_squared_probabilities_is_that_of_the_whole_table(chunk_size, transform):
    hidden, head, tokens, _ = make()
    settings = {"transform": transform, "temperature": 0.7, "chunk_size": chunk_size}
    with_it = score_tokens(hidden, head, tokens, **settings, with_sum_pi_squared=True)
    without = score_tokens(hidden, head, tokens, **settings)
    expected = token_sum_pi_squared(transform(head(hidden)), 0.7)
    torch.testing.assert_close(with_it.sum_pi_squared, expected.detach(), rtol=1e-12, atol=1e-12)
    assert without.sum_pi_squared is None
    assert not with_it.sum_pi_squared.requires_grad
    assert torch.equal(with_it.log_probs, without.log_probs)
    gradients = [torch.autograd.grad(scores.log_probs.sum(), hidden)[0] for scores in (with_it, without)]
    assert torch.equal(*gradients)


def test_the_entropy_alone_has_its_gradient():
    hidden, head, tokens, _ = make()
    _, entropy, _ = score_tokens(hidden, head, tokens, transform=identity, chunk_size=5)
    expected = torch.autograd.grad(token_entropy(head(hidden)).sum(), [hidden, head.weight])
    found = torch.autograd.grad(entropy.sum(), [hidden, head.weight])
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_no_more_than_a_chunk_of_logits_exists():
    hidden, head, tokens, _ = make()
    with LargestTable() as seen:
        log_probs, entropy, _ = score_tokens(
            hidden, head, tokens, transform=identity, chunk_size=4, with_sum_pi_squared=True
        )
        (log_probs.sum() + entropy.sum()).backward()
    assert seen.rows == 4
    with LargestTable() as seen:
        token_log_probs(head(hidden), tokens).sum().backward()
    assert seen.rows == N


def test_one_of_the_outputs_may_go_unused():
    hidden, head, tokens, _ = make()
    log_probs, _, _ = score_tokens(hidden, head, tokens, transform=identity, chunk_size=7)
    found = torch.autograd.grad(log_probs.sum(), hidden)
    expected = torch.autograd.grad(token_log_probs(head(hidden), tokens).sum(), hidden)
    torch.testing.assert_close(found, expected)


def test_no_tokens_give_zero_gradients_and_not_none():
    hidden, head, tokens, _ = make()
    log_probs, entropy, _ = score_tokens(hidden[:0], head, tokens[:0], transform=identity)
    assert log_probs.shape == entropy.shape == (0,)
    grads = torch.autograd.grad(log_probs.sum() + entropy.sum(), [hidden, head.weight])
    assert all(torch.equal(grad, torch.zeros_like(grad)) for grad in grads)


def test_a_frozen_output_layer_gets_no_gradient():
    hidden, head, tokens, _ = make()
    head.requires_grad_(False)
    score_tokens(hidden, head, tokens, transform=identity)[0].sum().backward()
    assert head.weight.grad is None
    assert float(hidden.grad.abs().sum()) > 0


def test_half_precision_adds_up_chunks_in_float32():
    """Summing 23 chunk gradients in bfloat16 would lose the small ones; only the result is rounded."""
    hidden, head, tokens, _ = make(torch.bfloat16)
    log_probs, _, _ = score_tokens(hidden, head, tokens, transform=identity, chunk_size=1)
    assert log_probs.dtype == torch.float32
    log_probs.sum().backward()
    single = [
        torch.autograd.grad(
            score_tokens(hidden[row : row + 1], head, tokens[row : row + 1], transform=identity)[0].sum(), head.weight
        )[0].float()
        for row in range(N)
    ]
    torch.testing.assert_close(head.weight.grad, torch.stack(single).sum(0).bfloat16(), rtol=0, atol=0)


def test_a_chunk_holds_at_least_one_token():
    hidden, head, tokens, _ = make()
    with pytest.raises(ConfigError, match="at least 1; found 0"):
        score_tokens(hidden, head, tokens, transform=identity, chunk_size=0)


@pytest.mark.parametrize(
    ("config", "make_logits"),
    [
        (Gemma2Config(final_logit_softcapping=30.0), lambda raw: torch.tanh(raw / 30.0) * 30.0),
        (GraniteConfig(logits_scaling=8.0), lambda raw: raw / 8.0),
        (Cohere2Config(logit_scale=0.25), lambda raw: raw * 0.25),
        (Qwen2Config(), lambda raw: raw),
        (Gemma2Config(final_logit_softcapping=None), lambda raw: raw),
        # A field may be there and not in use.
        (GraniteConfig(logits_scaling=8.0), lambda raw: raw),
    ],
)
def test_the_transform_is_found_by_what_the_model_does(config, make_logits):
    raw = torch.randn(3, V, generator=torch.Generator().manual_seed(0)) * 5
    transform = find_transform(config, raw, make_logits(raw))
    torch.testing.assert_close(transform(raw), make_logits(raw))


def test_an_unknown_transform_is_refused():
    raw = torch.randn(3, V, generator=torch.Generator().manual_seed(0))
    with pytest.raises(ConfigError, match=r"'qwen2' changes its logits .* not one of: unchanged"):
        find_transform(Qwen2Config(), raw, raw.abs())


def test_the_plain_model_has_one_candidate():
    assert list(logit_transforms(Qwen2Config())) == ["unchanged"]
