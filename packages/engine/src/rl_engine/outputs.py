"""Log-probs, entropy and sum of squared probabilities of response tokens straight from hidden states.

::

    hidden states of the whole pass  [total, H]
         │ select: only places that predict a response token
         ▼
    [N, H] ── chunk ──▶ output layer [chunk, V] ──▶ a number a token [chunk]       the [chunk, V] table is dropped
         ◀── chunk ── computed again in the backward pass ──

So a prompt token never meets the output layer, and no table of all tokens exists, forward or backward.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final, NamedTuple

import torch
from rl_core.algorithms.logprobs import DEFAULT_CHUNK_SIZE
from rl_core.algorithms.precision import widen
from rl_core.errors import ConfigError
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedConfig

LogitTransform = Callable[[Tensor], Tensor]
"""What a model does to its logits after the output layer, element by element."""


class TokenScores(NamedTuple):
    """What ``score_tokens`` computes, [N] each, float32 or float64.

    Attributes:
        log_probs: with gradient.
        entropy: with gradient; None where it is not wanted.
        sum_pi_squared: without gradient; None where it is not wanted.
    """

    log_probs: Tensor
    entropy: Tensor | None
    sum_pi_squared: Tensor | None


def score_tokens(
    hidden: Tensor,
    head: nn.Linear,
    tokens: Tensor,
    *,
    transform: LogitTransform,
    temperature: float = 1.0,
    chunk_size: int = DEFAULT_CHUNK_SIZE,
    with_entropy: bool = True,
    with_sum_pi_squared: bool = False,
    compiled: bool = False,
) -> TokenScores:
    """Log-prob of each token; entropy and sum of squared probabilities of the distribution it was drawn from.

    Args:
        hidden: [N, H], with gradient; row n predicts ``tokens[n]``.
        head: the output layer.
        tokens: [N] int64.
        transform: applied to the logits before the temperature.
        temperature: the sampling temperature, above 0.
        chunk_size: tokens whose logits exist at a time, at least 1.
        with_entropy: compute the entropy; the log-probs are the same to the bit without it.
        with_sum_pi_squared: compute the sum over the vocabulary of p squared; so are they without this.
        compiled: fuse what happens to each table of logits, so that it is read and written less often.

    Returns:
        The scores; there is a gradient also when N is 0. Backward can run once.

    Raises:
        ConfigError: the chunk size is below 1.
    """
    if chunk_size < 1:
        msg = f"chunk_size counts tokens and must be at least 1; found {chunk_size}"
        raise ConfigError(msg)
    scorer: Callable[..., tuple[Tensor, Tensor | None, Tensor | None]] = _ChunkedHead.apply
    settings = _Settings(transform, temperature, chunk_size, with_entropy, with_sum_pi_squared, compiled)
    return TokenScores(*scorer(hidden, head.weight, head.bias, tokens, settings))


class _Settings(NamedTuple):
    """The arguments of ``score_tokens`` that are no tensors."""

    transform: LogitTransform
    temperature: float
    chunk_size: int
    with_entropy: bool
    with_sum_pi_squared: bool
    compiled: bool


class _ChunkedHead(torch.autograd.Function):
    """Output layer and scores together; backward computes the logits of each chunk again."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, tokens: Tensor, settings: _Settings
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        ctx.save_for_backward(hidden, weight, bias, tokens)
        ctx.settings = settings
        ctx.set_materialize_grads(False)
        dtype = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        log_probs = torch.empty(len(tokens), dtype=dtype, device=hidden.device)
        entropy = torch.empty_like(log_probs) if settings.with_entropy else None
        sum_pi_squared = torch.empty_like(log_probs) if settings.with_sum_pi_squared else None
        score = _fused(_chunk_scores) if settings.compiled else _chunk_scores
        for part in _parts(len(tokens), settings.chunk_size):
            logits = settings.transform(functional.linear(hidden[part], weight, bias))
            found = score(
                logits, tokens[part], settings.temperature, settings.with_entropy, settings.with_sum_pi_squared
            )
            for column, values in zip((log_probs, entropy, sum_pi_squared), found, strict=True):
                if column is not None and values is not None:
                    column[part] = values
        if sum_pi_squared is not None:
            ctx.mark_non_differentiable(sum_pi_squared)
        return log_probs, entropy, sum_pi_squared

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, grad_log_probs: Tensor | None, grad_entropy: Tensor | None, _: Tensor | None
    ) -> tuple[Any, ...]:
        hidden, weight, bias, tokens = ctx.saved_tensors
        settings: _Settings = ctx.settings
        # hidden, weight, bias: frozen ones get no gradient, the others a zero one even when there are no tokens.
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        grad_hidden = torch.zeros_like(hidden) if needs_hidden else None
        # Many chunks add up in these two: in half precision their sum would lose the small ones.
        grad_weight = torch.zeros_like(widen(weight)) if needs_weight else None
        grad_bias = torch.zeros_like(widen(bias)) if needs_bias else None
        if grad_log_probs is None and grad_entropy is None:
            return _none_or_cast(grad_hidden, grad_weight, grad_bias, weight, bias)
        gradient = _fused(_chunk_gradient) if settings.compiled else _chunk_gradient
        for part in _parts(len(tokens), settings.chunk_size):
            raw = functional.linear(hidden[part], weight, bias)
            with torch.enable_grad():
                shaped = raw if settings.transform is identity else settings.transform(raw.requires_grad_())
            grad = gradient(
                shaped.detach(),
                tokens[part],
                settings.temperature,
                None if grad_log_probs is None else grad_log_probs[part],
                None if grad_entropy is None else grad_entropy[part],
            )
            if shaped is not raw:
                (grad,) = torch.autograd.grad(shaped, raw, grad)
            if grad_hidden is not None:
                grad_hidden[part] = grad @ weight
            if grad_weight is not None:
                grad_weight += grad.T @ hidden[part]
            if grad_bias is not None:
                grad_bias += grad.sum(0)
        return _none_or_cast(grad_hidden, grad_weight, grad_bias, weight, bias)


@cache
def _fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` compiled, for any number of tokens."""
    compiled: Callable[..., Any] = torch.compile(function, dynamic=True)
    return compiled


def _chunk_scores(
    logits: Tensor, tokens: Tensor, temperature: float, with_entropy: bool, with_sum_pi_squared: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """[n, V] logits -> what ``TokenScores`` holds, [n] each."""
    table = _log_softmax(logits, temperature)
    log_probs = table.gather(-1, tokens[:, None])[:, 0]
    entropy = _entropy(table) if with_entropy else None
    return log_probs, entropy, (2.0 * table).exp().sum(-1) if with_sum_pi_squared else None


def _chunk_gradient(
    logits: Tensor, tokens: Tensor, temperature: float, log_probs: Tensor | None, entropy: Tensor | None
) -> Tensor:
    """[n, V] gradient of the logits, in their type, from those of log-probs and entropy [n]."""
    grad = _logit_gradient(_log_softmax(logits, temperature), tokens, log_probs, entropy)
    return (grad if temperature == 1 else grad / temperature).to(logits.dtype)


def _none_or_cast(
    hidden: Tensor | None, weight: Tensor | None, bias: Tensor | None, like_weight: Tensor, like_bias: Tensor | None
) -> tuple[Any, ...]:
    """Gradients of the arguments of ``_ChunkedHead``, in their types."""
    grads = (
        None if grad is None or tensor is None else grad.to(tensor.dtype)
        for grad, tensor in ((weight, like_weight), (bias, like_bias))
    )
    return (hidden, *grads, None, None)


def _log_softmax(logits: Tensor, temperature: float) -> Tensor:
    """[n, V] float32 or float64."""
    wide = widen(logits)
    return torch.log_softmax(wide if temperature == 1 else wide / temperature, dim=-1)


def _entropy(table: Tensor) -> Tensor:
    """[n] from log-probs [n, V]; one of -inf contributes 0."""
    return -(table.exp() * table.masked_fill(table == -torch.inf, 0.0)).sum(-1)


def _logit_gradient(table: Tensor, tokens: Tensor, log_probs: Tensor | None, entropy: Tensor | None) -> Tensor:
    """[n, V] gradient of the logits, divided by the temperature, from those of log-probs and entropy [n].

    d log p_k / d z_j = [j = k] - p_j and d H / d z_j = -p_j (log p_j + H).
    """
    grad = table.exp()
    if entropy is None:
        assert log_probs is not None  # one of them is there
        grad *= -log_probs[:, None]
    else:
        surprise = torch.where(grad > 0, table + _entropy(table)[:, None], 0.0)
        share = entropy[:, None] * surprise
        grad *= -share if log_probs is None else -(log_probs[:, None] + share)
    if log_probs is not None:
        grad.scatter_add_(-1, tokens[:, None], log_probs[:, None])
    return grad


def _parts(total: int, chunk_size: int) -> list[slice]:
    return [slice(start, min(start + chunk_size, total)) for start in range(0, total, chunk_size)]


def logit_transforms(config: PreTrainedConfig) -> dict[str, LogitTransform]:
    """What a model of this configuration may do to its logits; the fields mean different things in different models.

    Returns:
        Description -> transform, the more likely ones first. ``find_transform`` says which of them is right.
    """
    text = config.get_text_config()
    found: dict[str, LogitTransform] = {}
    for name in ("final_logit_softcapping", "logits_soft_cap"):
        cap = getattr(text, name, None)
        if cap:
            found[f"capped by {name}={cap}"] = partial(_softcap, cap=cap)
    for name in ("logits_scaling", "logit_scale"):
        scale = getattr(text, name, None)
        if scale:
            found[f"divided by {name}={scale}"] = partial(torch.div, other=scale)
            found[f"times {name}={scale}"] = partial(torch.mul, other=scale)
    found["unchanged"] = identity
    return found


def _softcap(logits: Tensor, cap: float) -> Tensor:
    return torch.tanh(logits / cap) * cap


def identity(logits: Tensor) -> Tensor:
    """Most models leave their logits as the output layer makes them."""
    return logits


_CLOSE: Final = {torch.float64: 1e-9, torch.float32: 1e-4}


def find_transform(config: PreTrainedConfig, raw: Tensor, logits: Tensor) -> LogitTransform:
    """The transform that makes a model's own logits of what its output layer gave.

    Args:
        config: of the model.
        raw: what the output layer returned.
        logits: what the model made of it, the same shape.

    Raises:
        ConfigError: none of those that the configuration speaks of.
    """
    tolerance = _CLOSE.get(raw.dtype, 1e-2)
    for transform in logit_transforms(config).values():
        if torch.allclose(widen(transform(raw)), widen(logits), rtol=tolerance, atol=tolerance):
            return transform
    difference = float((widen(raw) - widen(logits)).abs().max())
    msg = (
        f"model type {config.model_type!r} changes its logits after the output layer (by up to {difference:.3g}) in a way "
        f"that is not one of: {', '.join(logit_transforms(config))}. Its log-probs would be wrong, so it cannot be trained"
    )
    raise ConfigError(msg)
