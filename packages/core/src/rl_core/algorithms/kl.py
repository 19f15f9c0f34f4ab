"""KL divergence of the policy from the reference, estimated at the sampled tokens, and its place in the reward.

With ``d = log_prob - ref_log_prob`` at a token drawn from the policy: k1 is unbiased with high variance, k2 has low
variance and the right gradient, k3 is unbiased and never negative. Only k3 exponentiates; it clamps *before* doing so,
because a clamp afterwards leaves a gradient of 0 * inf.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from rl_core.algorithms.checks import require_mask, require_same_shape
from rl_core.algorithms.masks import fill_masked, masked_mean
from rl_core.algorithms.precision import widen
from rl_core.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

K3_LOG_RATIO_LIMIT = 20.0
"""|d| beyond which k3 is constant: e**20 is finite in float32 and bfloat16."""
K3_CAP = 10.0
"""Largest value of k3 at one token, so that a single token cannot carry the whole batch's mean."""

KLEstimator = Callable[["Tensor", "Tensor"], "Tensor"]
"""``f(log_prob, ref_log_prob) -> kl``, all [B, T]; the gradient flows into ``log_prob`` alone."""


def k1(log_prob: Tensor, ref_log_prob: Tensor) -> Tensor:
    """The log-ratio ``d``: unbiased, may be negative; its gradient is that of ``log_prob``, not that of the KL.

    Args:
        log_prob: [B, T] float, under the policy, with gradient.
        ref_log_prob: [B, T] float, under the reference.

    Returns:
        [B, T] float32 or float64.

    Raises:
        ShapeError: shapes differ.

    Source: Schulman 2020, "Approximating KL divergence", estimator k1.
    """
    return _log_ratio(log_prob, ref_log_prob)


def k1_abs(log_prob: Tensor, ref_log_prob: Tensor) -> Tensor:
    """The distance ``|d|``; gradient 0 at ``d = 0``.

    Args:
        log_prob: [B, T] float, under the policy, with gradient.
        ref_log_prob: [B, T] float, under the reference.

    Returns:
        [B, T] float32 or float64, never negative.

    Raises:
        ShapeError: shapes differ.
    """
    return _log_ratio(log_prob, ref_log_prob).abs()


def k2(log_prob: Tensor, ref_log_prob: Tensor) -> Tensor:
    """Half the squared log-ratio, ``d**2 / 2``: its expected gradient is the gradient of the KL.

    Args:
        log_prob: [B, T] float, under the policy, with gradient.
        ref_log_prob: [B, T] float, under the reference.

    Returns:
        [B, T] float32 or float64, never negative.

    Raises:
        ShapeError: shapes differ.

    Source: Schulman 2020, "Approximating KL divergence", estimator k2.
    """
    return 0.5 * _log_ratio(log_prob, ref_log_prob).square()


def k3(log_prob: Tensor, ref_log_prob: Tensor) -> Tensor:
    """The low-variance estimator ``exp(-d) + d - 1``: unbiased, never negative.

    Deviation from the source: ``d`` is clamped to +-20 before the exponential and the value is capped at 10. Beyond
    either limit the gradient is 0; it is finite everywhere.

    Args:
        log_prob: [B, T] float, under the policy, with gradient.
        ref_log_prob: [B, T] float, under the reference.

    Returns:
        [B, T] float32 or float64, in [0, 10].

    Raises:
        ShapeError: shapes differ.

    Source: Schulman 2020, "Approximating KL divergence", estimator k3; Shao et al. 2024, arXiv:2402.03300, eq. 4.
    """
    minus_d = (-_log_ratio(log_prob, ref_log_prob)).clamp(-K3_LOG_RATIO_LIMIT, K3_LOG_RATIO_LIMIT)
    return (torch.expm1(minus_d) - minus_d).clamp(0.0, K3_CAP)


def straight_through(estimator: KLEstimator) -> KLEstimator:
    """Give an estimator the gradient of k2 and leave its value.

    Args:
        estimator: the one that sets the value.

    Returns:
        An estimator of the same signature.
    """

    def estimate(log_prob: Tensor, ref_log_prob: Tensor) -> Tensor:
        carrier = k2(log_prob, ref_log_prob)
        return estimator(log_prob, ref_log_prob).detach() + (carrier - carrier.detach())

    return estimate


BUILT_IN: dict[str, KLEstimator] = {
    "kl": k1,
    "k1": k1,
    "abs": k1_abs,
    "k1_abs": k1_abs,
    "mse": k2,
    "k2": k2,
    "low_var_kl": k3,
    "k3": k3,
}
"""The estimators of this file under their configuration names."""


def kl_penalty(log_prob: Tensor, ref_log_prob: Tensor, estimator: str | KLEstimator) -> Tensor:
    """KL of the policy from the reference at each token, not masked.

    Args:
        log_prob: [B, T] float, under the policy, with gradient.
        ref_log_prob: [B, T] float, under the reference; no gradient flows through it.
        estimator: a key of ``BUILT_IN``, with the suffix ``+`` for its straight-through form; or the function itself,
            as the plugin registry loads it.

    Returns:
        [B, T] float32 or float64.

    Raises:
        ShapeError: shapes differ.
        ConfigError: a name that is not in this file.
    """
    if not isinstance(estimator, str):
        return estimator(log_prob, ref_log_prob)
    name = estimator.removesuffix("+")
    if name not in BUILT_IN:
        msg = (
            f"KL estimator '{estimator}' is none of the built-in ones; found {', '.join(BUILT_IN)} (each also with +). "
            "Use one of these, or pass the function a plugin registered."
        )
        raise ConfigError(msg)
    chosen = straight_through(BUILT_IN[name]) if estimator.endswith("+") else BUILT_IN[name]
    return chosen(log_prob, ref_log_prob)


@torch.no_grad()
def apply_kl_to_rewards(
    token_level_scores: Tensor,
    log_prob: Tensor,
    ref_log_prob: Tensor,
    mask: Tensor,
    coef: float,
    estimator: str | KLEstimator,
) -> tuple[Tensor, float]:
    """Subtract the KL penalty from the scores, token by token.

    Args:
        token_level_scores: [B, T] float, from the reward; NaN at a masked-in position (missing reward) stays NaN.
        log_prob: [B, T] float, policy at the start of the step.
        ref_log_prob: [B, T] float, reference policy.
        mask: [B, T] bool.
        coef: weight of the penalty, at least 0; usually a KL controller's value.
        estimator: as for ``kl_penalty``.

    Returns:
        token_level_rewards [B, T] = scores - coef * kl, 0.0 where masked; and the mean over sequences of their mean KL
        per token, before the coefficient (0.0 when every row is masked).

    Raises:
        ShapeError: shapes differ, or the mask is not bool of rank 2.
        ConfigError: an estimator name that is not built in, or ``coef`` below 0.

    Source: Ouyang et al. 2022 (InstructGPT), arXiv:2203.02155, eq. 2.
    """
    require_mask(mask, "mask")
    require_same_shape("token_level_scores", token_level_scores, "mask", mask)
    require_same_shape("log_prob", log_prob, "mask", mask)
    if not coef >= 0:
        msg = f"the KL coefficient must be at least 0; found {coef}. Set algorithm.kl_ctrl.kl_coef."
        raise ConfigError(msg)
    kl = fill_masked(kl_penalty(log_prob, ref_log_prob, estimator), mask)
    rewards = fill_masked(widen(token_level_scores) - coef * kl, mask)
    mean_kl = masked_mean(masked_mean(kl, mask, dim=1), mask.any(dim=1))
    return rewards, float(mean_kl)


def _log_ratio(log_prob: Tensor, ref_log_prob: Tensor) -> Tensor:
    require_same_shape("ref_log_prob", ref_log_prob, "log_prob", log_prob)
    return widen(log_prob) - widen(ref_log_prob.detach())
