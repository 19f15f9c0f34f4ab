"""Log-probs and entropy of response tokens straight from hidden states.

::

    hidden states of the whole pass  [total, H]
         │ select: only places that predict a response token
         ▼
    [N, H] ── chunk ──▶ output layer [chunk, V] ──▶ log-prob, entropy [chunk]      the [chunk, V] table is dropped
         ◀── chunk ── computed again in the backward pass ──

So a prompt token never meets the output layer, and no table of all tokens exists, forward or backward.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from rl_core.algorithms.logprobs import DEFAULT_CHUNK_SIZE, chunked_log_probs
from rl_core.algorithms.precision import widen
from rl_core.errors import ConfigError
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedConfig

LogitTransform = Callable[[Tensor], Tensor]
"""What a model does to its logits after the output layer, element by element."""


def score_tokens(
    hidden: Tensor,
    head: nn.Linear,
    tokens: Tensor,
    *,
    transform: LogitTransform,
    temperature: float = 1.0,
    chunk_size: int = DEFAULT_CHUNK_SIZE,
) -> tuple[Tensor, Tensor]:
    """Log-prob of each token and entropy of the distribution it was drawn from.

    Args:
        hidden: [N, H], with gradient; row n predicts ``tokens[n]``.
        head: the output layer.
        tokens: [N] int64.
        transform: applied to the logits before the temperature.
        temperature: the sampling temperature, above 0.
        chunk_size: tokens whose logits exist at a time, at least 1.

    Returns:
        log_probs and entropy, [N] each, float32 or float64, with gradient (also when N is 0). Backward can run once.

    Raises:
        ConfigError: the chunk size is below 1.
    """
    if chunk_size < 1:
        msg = f"chunk_size counts tokens and must be at least 1; found {chunk_size}"
        raise ConfigError(msg)
    scorer: Callable[..., tuple[Tensor, Tensor]] = _ChunkedHead.apply
    return scorer(hidden, head.weight, head.bias, tokens, transform, temperature, chunk_size)


class _ChunkedHead(torch.autograd.Function):
    """Output layer, log-prob and entropy together; backward computes the logits of each chunk again."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        tokens: Tensor,
        transform: LogitTransform,
        temperature: float,
        chunk_size: int,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(hidden, weight, bias, tokens)
        ctx.settings = (transform, temperature, chunk_size)
        dtype = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        log_probs = torch.empty(len(tokens), dtype=dtype, device=hidden.device)
        entropy = torch.empty_like(log_probs)
        for part in _parts(len(tokens), chunk_size):
            logits = transform(functional.linear(hidden[part], weight, bias))
            log_probs[part], entropy[part] = chunked_log_probs(logits, tokens[part], temperature, chunk_size)
        return log_probs, entropy

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_log_probs: Tensor, grad_entropy: Tensor) -> tuple[Any, ...]:
        hidden, weight, bias, tokens = ctx.saved_tensors
        transform, temperature, chunk_size = ctx.settings
        # hidden, weight, bias: frozen ones get no gradient, the others a zero one even when there are no tokens.
        needs = ctx.needs_input_grad[:3]
        wanted = [tensor if need else None for tensor, need in zip((hidden, weight, bias), needs, strict=True)]
        grad_hidden = None if wanted[0] is None else torch.zeros_like(hidden)
        # Many chunks add up in the weight's gradient: in half precision their sum would lose the small ones.
        sums = [None if tensor is None else torch.zeros_like(widen(tensor)) for tensor in wanted[1:]]
        for part in _parts(len(tokens), chunk_size):
            leaves: list[Any] = [
                None if tensor is None else tensor.detach().requires_grad_(need)
                for tensor, need in zip((hidden[part], weight, bias), needs, strict=True)
            ]
            states, layer, offset = leaves
            with torch.enable_grad():
                logits = transform(functional.linear(states, layer, offset))
                scores = chunked_log_probs(logits, tokens[part], temperature, chunk_size)
            inputs = [leaf for leaf in leaves if leaf is not None and leaf.requires_grad]
            found = iter(torch.autograd.grad(scores, inputs, (grad_log_probs[part], grad_entropy[part])))
            if grad_hidden is not None:
                grad_hidden[part] = next(found)
            for total in sums:
                if total is not None:
                    total += next(found)
        grads = [
            None if total is None else total.to(tensor.dtype)
            for total, tensor in zip(sums, (weight, bias), strict=True)
        ]
        return grad_hidden, *grads, None, None, None, None


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
