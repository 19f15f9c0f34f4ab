"""The loss of PRIME's reward model: the implicit reward of a response as the logit of its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import torch
from rl_core.algorithms.checks import require_mask, require_same_shape
from rl_core.algorithms.masks import fill_masked, masked_sum
from rl_core.algorithms.precision import widen
from rl_core.errors import ShapeError
from rl_core.metrics import Metric
from rl_dataproto import pad_jagged
from torch import Tensor

if TYPE_CHECKING:
    from rl_core.algorithms.inputs import LossTotals
    from rl_core.contracts.engine import TokenOutputs
    from rl_dataproto import DataProto

REFERENCE_COLUMN: Final = "rm_ref_log_prob"
"""Jagged column: log-probs of the reference that the implicit reward is measured against."""

UNDECIDED: Final = 1e-4
"""A response whose reward lies nearer to 0 is neither called right nor wrong; its probability is 0.5 to four digits."""


def implicit_rewards(log_prob: Tensor, ref_log_prob: Tensor, response_mask: Tensor, beta: float) -> Tensor:
    """The process reward of each token.

    ``beta * (log pi(y_t) - log pi_ref(y_t))``, so that the reward of a response is beta times its log-ratio.

    Args:
        log_prob: [B, T] float, under the reward model; the gradient flows here.
        ref_log_prob: [B, T] float, under its reference.
        response_mask: [B, T] bool, True where the policy emitted the token.
        beta: scale.

    Returns:
        [B, T] float32 or float64, 0.0 where masked.

    Raises:
        ShapeError: shapes differ, or the mask is not bool of rank 2.

    Source: Cui et al. 2025, arXiv:2502.01456, eq. 3.
    """
    require_mask(response_mask)
    for name, tensor in (("log_prob", log_prob), ("ref_log_prob", ref_log_prob)):
        require_same_shape(name, tensor, "response_mask", response_mask)
    # Each is replaced before the subtraction, so that no gradient meets what stands at a masked position.
    policy, reference = (fill_masked(widen(tensor), response_mask) for tensor in (log_prob, ref_log_prob))
    return beta * (policy - reference.detach())


def outcome_cross_entropy(rewards: Tensor, response_mask: Tensor, outcomes: Tensor, totals: LossTotals) -> Tensor:
    """Cross-entropy between the outcome of each response and the sigmoid of its reward, a mean over responses.

    ``-(1 / num_sequences) * sum_i [o_i log s(R_i) + (1 - o_i) log(1 - s(R_i))]`` with R the sum of a row's rewards.

    Args:
        rewards: [B, T] float, from ``implicit_rewards``.
        response_mask: [B, T] bool; a fully masked row adds nothing.
        outcomes: [B] float, from 0 (wrong) to 1 (right).
        totals: of the whole mini-batch.

    Returns:
        Scalar, this shard's additive share; 0.0 with a zero gradient where nothing is masked in.

    Raises:
        ShapeError: shapes differ; or ``totals`` counts no sequences while the mask holds tokens.

    Source: Cui et al. 2025, arXiv:2502.01456, Algorithm 1, the loss of the implicit process reward model.
    """
    require_same_shape("rewards", rewards, "response_mask", response_mask)
    present = response_mask.any(dim=1)
    require_same_shape("outcomes", outcomes, "rows of response_mask", present)
    if present.any() and not totals.num_sequences:
        msg = (
            f"the mini-batch is said to hold no sequence, and {int(present.sum())} are here: take totals from its plan"
        )
        raise ShapeError(msg)
    logits = masked_sum(rewards, response_mask, dim=1)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, outcomes.to(logits), reduction="none")
    return fill_masked(loss, present).sum() / max(totals.num_sequences, 1)


class ImplicitRewardLoss:
    """The loss of one micro-batch; see ``LossFunction``."""

    outputs = frozenset({"log_probs"})

    def __init__(self, beta: float, totals: LossTotals) -> None:
        """Store scale and totals of the mini-batch."""
        self._beta = beta
        self._totals = totals

    def __call__(self, outputs: TokenOutputs, micro_batch: DataProto) -> tuple[Tensor, Mapping[str, Metric]]:
        """Share of the loss, of the accuracy and of the mean reward of a response."""
        mask = outputs.response_mask
        if outputs.log_probs is None:
            msg = (
                "the engine did not return log_probs, which this loss asked for in its `outputs`: a fault of the engine"
            )
            raise RuntimeError(msg)
        reference = pad_jagged(micro_batch.batch[REFERENCE_COLUMN], 0.0, length=mask.shape[1])
        rewards = implicit_rewards(outputs.log_probs, reference.to(mask.device), mask, self._beta)
        outcomes = outcomes_of(micro_batch).to(mask.device)
        loss = outcome_cross_entropy(rewards, mask, outcomes, self._totals)
        with torch.no_grad():
            present = mask.any(dim=1)
            totals = masked_sum(rewards, mask, dim=1)
            count = max(self._totals.num_sequences, 1)
        return loss, {
            "reward_model/accuracy": Metric(float(told_apart(totals, outcomes)[present].sum()) / count, "sum"),
            "reward_model/implicit_reward": Metric(float(totals.sum()) / count, "sum", keep_nan=True),
        }


def told_apart(rewards: Tensor, outcomes: Tensor) -> Tensor:
    """How well the sign of each response's reward tells its outcome: 1 where it does, 0 where not, 0.5 where undecided.

    A model that is still its own reference is undecided: what is left of its rewards is rounding.

    Args:
        rewards: [B] float, sums over responses.
        outcomes: [B] float, from 0 (wrong) to 1 (right).
    """
    right = (rewards > 0) == (outcomes > 0.5)  # nearer to right than to wrong
    return torch.where(rewards.abs() < UNDECIDED, 0.5, right.to(rewards.dtype))


def outcomes_of(batch: DataProto) -> Tensor:
    """[B] float, the reward function's score of each row: the sum of jagged ``token_level_scores``."""
    return pad_jagged(batch.batch["token_level_scores"], 0.0).sum(dim=1)
