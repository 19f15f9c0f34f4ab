"""Methods that are nothing but keys.

Each gives the method of its paper; sizes (batch, lengths, steps) and the learning rate are a matter of the model and stay
the user's. ``rollout.n`` is 8, since a group needs several responses; the papers take 16 to 64.
"""

from __future__ import annotations

from typing import Any, Final

GROUP_SIZE: Final = 8


def grpo() -> dict[str, Any]:
    """Shao et al. 2024, arXiv:2402.03300, eq. 3 and section 4.2: the KL term is k3 with weight 0.04, in the loss."""
    return _group_method(
        {
            "loss_agg_mode": "seq-mean-token-mean",
            "use_kl_loss": True,
            "kl_loss_type": "low_var_kl",
            "kl_loss_coef": 0.04,
        }
    )


def dr_grpo() -> dict[str, Any]:
    """Liu et al. 2025, arXiv:2503.20783, section 3.2: neither the group's spread nor a response's length divides."""
    return _group_method({"loss_agg_mode": "seq-mean-token-sum-norm"}, norm_adv_by_std_in_grpo=False)


def gspo() -> dict[str, Any]:
    """Zheng et al. 2025, arXiv:2507.18071, eq. 5 and section 5.1: ratios of whole responses, clipped to 3e-4 and 4e-4."""
    return _group_method(
        {
            "policy_loss": {"loss_mode": "gspo"},
            "loss_agg_mode": "seq-mean-token-mean",
            "clip_ratio_low": 3e-4,
            "clip_ratio_high": 4e-4,
        }
    )


def cispo() -> dict[str, Any]:
    """MiniMax 2025 (MiniMax-M1), arXiv:2506.13585, eq. 4 and 5: only the upper side of the importance weight is clipped."""
    return _group_method(
        {
            "policy_loss": {"loss_mode": "cispo"},
            "loss_agg_mode": "token-mean",
            "clip_ratio_low": 1.0,
        }
    )


def _group_method(actor: dict[str, Any], *, norm_adv_by_std_in_grpo: bool = True) -> dict[str, Any]:
    return {
        "algorithm": {
            "adv_estimator": "grpo",
            "norm_adv_by_std_in_grpo": norm_adv_by_std_in_grpo,
            "use_kl_in_reward": False,
        },
        "actor_rollout_ref": {"actor": {"use_kl_loss": False} | actor, "rollout": {"n": GROUP_SIZE}},
    }
