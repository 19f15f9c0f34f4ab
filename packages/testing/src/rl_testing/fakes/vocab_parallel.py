"""Log-probs, entropy and sums of squared probabilities when each rank of a group has the logits of some of the vocabulary.

All are replicated results of sharded input, so their backward needs no communication; the hidden states are replicated
input of a sharded product, so theirs adds up the ranks' shares.

Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3 (the conjugate pair f and g, and the parallel cross entropy).
"""

from __future__ import annotations

from typing import Any

import torch
from rl_core.single_controller.base.collective import Collective
from torch import Tensor


def all_sum(tensor: Tensor, group: Collective) -> Tensor:
    """Sum over ranks, added in rank order, so that every rank gets the same bits."""
    total = torch.zeros_like(tensor)
    for share in group.all_gather_object(tensor.detach()):
        total = total + share
    return total


class CopyToGroup(torch.autograd.Function):
    """Identity forward; backward adds up the gradients of all ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Collective) -> Tensor:
        """[N, H] -> the same."""
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """[N, H] share of the gradient -> the whole."""
        return all_sum(grads[0], ctx.group), None


class ScoreTokens(torch.autograd.Function):
    """What an engine says about tokens, from sharded logits."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, tokens: Tensor, first: int, group: Collective
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Score each token.

        Args:
            ctx: autograd's.
            logits: [N, V_local], temperature applied.
            tokens: [N] int64 over the whole vocabulary.
            first: id of the first token of this rank's share.
            group: ranks that share the vocabulary.

        Returns:
            Log-probs [N], entropy [N], and the sum of squared probabilities [N] without gradient; equal on all ranks.
        """
        largest = torch.stack(group.all_gather_object(logits.detach().amax(-1))).amax(0)
        shifted = logits - largest[:, None]
        log_normalizer = all_sum(shifted.exp().sum(-1), group).log()
        table = shifted - log_normalizer[:, None]
        probs = table.exp()

        local = tokens - first
        is_here = (local >= 0) & (local < logits.shape[-1])
        local = local.clamp(0, logits.shape[-1] - 1)
        own = table.gather(-1, local[:, None]).squeeze(-1)
        log_probs = all_sum(torch.where(is_here, own, torch.zeros_like(own)), group)
        entropy = all_sum(-(probs * table).sum(-1), group)
        sum_pi_squared = all_sum(probs.square().sum(-1), group)
        ctx.save_for_backward(table, local, is_here, entropy)
        ctx.mark_non_differentiable(sum_pi_squared)
        return log_probs, entropy, sum_pi_squared

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        """D log p(t) / d logit(v) = [v = t] - p(v);  dH / d logit(v) = -p(v) (log p(v) + H)."""
        grad_log_probs, grad_entropy, _ = grads
        table, local, is_here, entropy = ctx.saved_tensors
        probs = table.exp()
        grad = -probs * grad_log_probs[:, None]
        grad.scatter_add_(-1, local[:, None], (grad_log_probs * is_here)[:, None])
        grad = grad - probs * (table + entropy[:, None]) * grad_entropy[:, None]
        return grad, None, None, None
