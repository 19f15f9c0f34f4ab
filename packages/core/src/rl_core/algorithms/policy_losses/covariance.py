"""The tokens that drive entropy down: those with the largest covariance of advantage and log-prob.

In the papers the covariance and the share of tokens are those of a batch. Here the batch is **all tokens of a trainer
step**, and the log-prob is that of the policy at the step's start: tokens are chosen once a step, on the controller,
and the choice travels with the rows. So it does not depend on how rows are cut into mini-batches, micro-batches or
over workers, and later epochs keep it. Up to the mean, which is the step's and not the mini-batch's, the first
mini-batch of a step is that of the paper; in later ones the policy has moved, and the choice has not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_core.algorithms.masks import fill_masked, masked_mean
from rl_core.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.inputs import PolicyLossInputs, PrepareInputs


def covariance(inputs: PrepareInputs) -> Tensor:
    """Covariance of each token.

    ``(A_t - mean A) * (log p_t - mean log p)``, means over all masked-in tokens of the step.

    Returns:
        [B, T] float64, 0 where masked.

    Source: Cui et al. 2025, arXiv:2505.22617, eq. 10.
    """
    mask = inputs.response_mask
    advantages, log_prob = inputs.advantages.double(), inputs.old_log_prob.double()
    centred = (advantages - masked_mean(advantages, mask)) * (log_prob - masked_mean(log_prob, mask))
    return fill_masked(centred, mask)


def num_chosen(inputs: PrepareInputs, ratio: float) -> int:
    """Tokens that a share of the step's tokens is: rounded down, but at least 1 where there are tokens and a share."""
    num_tokens = int(inputs.response_mask.sum())
    return max(int(ratio * num_tokens), 1) if ratio > 0 and num_tokens else 0


def chosen_tokens(inputs: PolicyLossInputs, loss: str) -> Tensor:
    """[B, T] bool, the tokens that were chosen over the whole step; False where masked.

    Raises:
        DataError: nobody chose; the message names ``loss``.
    """
    if inputs.prepared is None:
        msg = (
            f"policy loss {loss!r} works on tokens chosen over the whole step, and this batch holds no choice. Call its "
            "record's `prepare` on the controller (prepare_policy_loss) before the update."
        )
        raise DataError(msg)
    return inputs.prepared.bool() & inputs.response_mask
