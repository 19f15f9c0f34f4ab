"""Log-probs, entropy and the sum of squared probabilities of sampled tokens from logits.

``token_log_probs``, ``token_entropy`` and ``token_sum_pi_squared`` are the definitions: exact, and hungry, since they
hold the whole ``[tokens, V]`` table in float32. ``chunked_log_probs`` gives the same numbers and gradients, and
``chunked_sum_pi_squared`` the same numbers, while only one chunk of tokens is ever held in float32.

Row t of causal logits predicts token t + 1. ``response_log_probs`` makes that shift; the others expect it made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from rl_core.algorithms.precision import widen
from rl_core.errors import ConfigError, ShapeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

DEFAULT_CHUNK_SIZE = 1024
"""Tokens per chunk: for a 150,000-word vocabulary one float32 table is 0.6 GB, and about five exist at a time."""


def token_log_probs(logits: Tensor, tokens: Tensor, temperature: float = 1.0) -> Tensor:
    """Log-prob of each token under ``softmax(logits / temperature)``; the slow, exact definition.

    Args:
        logits: [..., V] float, with gradient; row t belongs to ``tokens[t]``.
        tokens: [...] int64, ids in [0, V), also at positions that a mask will drop.
        temperature: the sampling temperature, above 0.

    Returns:
        [...] float32 or float64.

    Raises:
        ShapeError: ``logits`` is not ``tokens`` with one more dimension.
        ConfigError: the temperature is not above 0.
    """
    _check(logits, tokens, temperature)
    table = torch.log_softmax(widen(logits) / temperature, dim=-1)
    return table.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def token_entropy(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Entropy of ``softmax(logits / temperature)`` in nats; the slow, exact definition.

    Args:
        logits: [..., V] float, with gradient; -inf excludes a token.
        temperature: the sampling temperature, above 0.

    Returns:
        [...] float32 or float64, in [0, ln V].

    Raises:
        ConfigError: the temperature is not above 0.
    """
    _check_temperature(temperature)
    return _entropy(torch.log_softmax(widen(logits) / temperature, dim=-1))


def token_sum_pi_squared(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Sum over the vocabulary of ``softmax(logits / temperature)`` squared; the slow, exact definition.

    The chance that two independent draws give the same token: 1 for a certain token, 1 / V for a uniform choice. With
    it the squared norm of the gradient of a token's log-prob with respect to the logits at temperature 1 is
    ``1 - 2 p(token) + sum``.

    Args:
        logits: [..., V] float; -inf excludes a token.
        temperature: the sampling temperature, above 0.

    Returns:
        [...] float32 or float64, in [1 / V, 1].

    Raises:
        ConfigError: the temperature is not above 0.
    """
    _check_temperature(temperature)
    return _sum_pi_squared(torch.log_softmax(widen(logits) / temperature, dim=-1))


@torch.no_grad()
def chunked_sum_pi_squared(logits: Tensor, temperature: float = 1.0, chunk_size: int = DEFAULT_CHUNK_SIZE) -> Tensor:
    """``token_sum_pi_squared``, a chunk of tokens at a time and without gradient.

    Args:
        logits: [..., V] float; -inf excludes a token.
        temperature: the sampling temperature, above 0.
        chunk_size: tokens held in float32 at a time, at least 1.

    Returns:
        [...] float32 or float64, in [1 / V, 1], no gradient.

    Raises:
        ConfigError: the temperature is not above 0, or the chunk size is below 1.
    """
    _check_temperature(temperature)
    _check_chunk_size(chunk_size)
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    result = torch.empty(logits.shape[:-1], dtype=dtype, device=logits.device)
    flat, start = result.view(-1), 0
    for chunk in _chunks(logits, chunk_size):
        flat[start : start + len(chunk)] = token_sum_pi_squared(chunk, temperature)
        start += len(chunk)
    return result


def chunked_log_probs(
    logits: Tensor, tokens: Tensor, temperature: float = 1.0, chunk_size: int = DEFAULT_CHUNK_SIZE
) -> tuple[Tensor, Tensor]:
    """Log-probs and entropy, a chunk of tokens at a time.

    Backward recomputes each chunk's softmax from the logits instead of keeping it, and can run once only. The gradient
    of the logits has their dtype.

    Args:
        logits: [..., V] float, with gradient; row t belongs to ``tokens[t]``; -inf excludes a token. It must stay
            unchanged until backward.
        tokens: [...] int64, ids in [0, V), also at positions that a mask will drop.
        temperature: the sampling temperature, above 0.
        chunk_size: tokens held in float32 at a time, at least 1.

    Returns:
        log_probs [...] and entropy [...], both float32 or float64, both with gradient.

    Raises:
        ShapeError: ``logits`` is not ``tokens`` with one more dimension.
        ConfigError: the temperature is not above 0, or the chunk size is below 1.
    """
    _check(logits, tokens, temperature)
    _check_chunk_size(chunk_size)
    scorer: Callable[..., tuple[Tensor, Tensor]] = _ChunkedLogProbs.apply
    return scorer(logits, tokens, float(temperature), chunk_size)


def response_log_probs(
    logits: Tensor, input_ids: Tensor, prompt_length: int, temperature: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Log-probs and entropy of the response tokens of whole sequences, with the shift by one.

    Args:
        logits: [B, L, V] float, causal: row t predicts ``input_ids[:, t + 1]``.
        input_ids: [B, L] int64, prompt then response.
        prompt_length: padded length of the prompt, in [1, L].
        temperature: the sampling temperature, above 0.

    Returns:
        log_probs and entropy, both [B, L - prompt_length], float32 or float64.

    Raises:
        ShapeError: shapes do not fit, or the prompt length lies outside [1, L].
        ConfigError: the temperature is not above 0.
    """
    _check(logits, input_ids, temperature)
    length = input_ids.shape[-1]
    if not 1 <= prompt_length <= length:
        msg = (
            f"prompt_length must lie in [1, {length}], the length of input_ids {tuple(input_ids.shape)}; found "
            f"{prompt_length}. The first response token needs one token before it."
        )
        raise ShapeError(msg)
    return chunked_log_probs(logits[:, prompt_length - 1 : length - 1], input_ids[:, prompt_length:], temperature)


class _ChunkedLogProbs(torch.autograd.Function):
    """Log-prob and entropy whose backward recomputes the softmax chunk by chunk."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, tokens: Tensor, temperature: float, chunk_size: int) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(logits, tokens)
        ctx.temperature, ctx.chunk_size = temperature, chunk_size
        dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
        log_probs = torch.empty(tokens.numel(), dtype=dtype, device=logits.device)
        entropy = torch.empty_like(log_probs)
        flat_tokens, start = tokens.reshape(-1), 0
        for chunk in _chunks(logits, chunk_size):
            part = slice(start, start + len(chunk))
            table = torch.log_softmax(widen(chunk) / temperature, dim=-1)
            log_probs[part] = table.gather(-1, flat_tokens[part].unsqueeze(-1)).squeeze(-1)
            entropy[part] = _entropy(table)
            start = part.stop
        return log_probs.view(tokens.shape), entropy.view(tokens.shape)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_log_probs: Tensor, grad_entropy: Tensor) -> tuple[Tensor, None, None, None]:
        logits, tokens = ctx.saved_tensors
        grad_logits = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
        flat_grad = grad_logits.view(-1, logits.shape[-1])
        flat_tokens, start = tokens.reshape(-1), 0
        for chunk in _chunks(logits, ctx.chunk_size):
            part = slice(start, start + len(chunk))
            table = torch.log_softmax(widen(chunk) / ctx.temperature, dim=-1)
            g_log_prob = grad_log_probs.reshape(-1)[part].unsqueeze(-1)
            g_entropy = grad_entropy.reshape(-1)[part].unsqueeze(-1)
            # d log p_k / d z_j = [j = k] - p_j;  d H / d z_j = -p_j (log p_j + H)
            probs = table.exp()
            surprise = torch.where(probs > 0, table + _entropy(table).unsqueeze(-1), 0.0)
            grad = -probs * (g_log_prob + g_entropy * surprise)
            grad.scatter_add_(-1, flat_tokens[part].unsqueeze(-1), g_log_prob)
            flat_grad[part] = (grad / ctx.temperature).to(logits.dtype)
            start = part.stop
        return grad_logits, None, None, None


def _entropy(table: Tensor) -> Tensor:
    """Entropy from log-probs [..., V]; a log-prob of -inf contributes 0."""
    return -(table.exp() * table.masked_fill(table == float("-inf"), 0.0)).sum(-1)


def _sum_pi_squared(table: Tensor) -> Tensor:
    """Sum of squared probabilities from log-probs [..., V]."""
    return (2.0 * table).exp().sum(-1)


def _chunks(logits: Tensor, chunk_size: int) -> list[Tensor]:
    """Views [n, V] of the logits in row-major order, n <= chunk_size, without a copy of the whole.

    A response slice of the logits is not contiguous, and flattening it would copy it; its rows are contiguous.
    """
    if logits.dim() <= 2 or logits.is_contiguous():
        flat = logits.reshape(-1, logits.shape[-1])
        return [flat[start : start + chunk_size] for start in range(0, len(flat), chunk_size)]
    return [chunk for row in logits.unbind(0) for chunk in _chunks(row, chunk_size)]


def _check(logits: Tensor, tokens: Tensor, temperature: float) -> None:
    if logits.shape[:-1] != tokens.shape or logits.dim() != tokens.dim() + 1:
        msg = (
            f"logits must have the shape of tokens and one vocabulary dimension more; found logits "
            f"{tuple(logits.shape)} and tokens {tuple(tokens.shape)}. Cut both to the same positions."
        )
        raise ShapeError(msg)
    _check_temperature(temperature)


def _check_chunk_size(chunk_size: int) -> None:
    if chunk_size < 1:
        msg = f"chunk_size counts tokens and must be at least 1; found {chunk_size}."
        raise ConfigError(msg)


def _check_temperature(temperature: float) -> None:
    if not temperature > 0:
        msg = (
            f"temperature must be above 0 to score tokens; found {temperature}. Greedy sampling has no log-probs; "
            "train with rollout.temperature above 0."
        )
        raise ConfigError(msg)
