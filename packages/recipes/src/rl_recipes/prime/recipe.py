"""``recipe=prime``."""

from __future__ import annotations

from typing import Any


def prime() -> dict[str, Any]:
    """The paper's method with its learning rates.

    The process reward model starts as a copy of the policy, like its reference, and is updated after it has scored the
    step's rows (Algorithm 1; the paper calls it single-forward). Prompts whose responses are all right or all wrong are
    replaced, which with four responses to a prompt is the paper's filter of accuracies from 0.2 to 0.8.
    """
    return {
        "algorithm": {
            "adv_estimator": "prime",
            "use_kl_in_reward": False,
            "filter_groups": {"enable": True, "metric": "reward"},
        },
        "actor_rollout_ref": {
            "actor": {"use_kl_loss": False, "loss_agg_mode": "token-mean", "optim": {"lr": 5e-7}},
            "rollout": {"n": 4, "temperature": 1.0},
        },
        "reward_model": {
            "enable": True,
            "type": "prime",
            "model": {"path": "${actor_rollout_ref.model.path}"},
            "update": "after",
            "optim": {"lr": 1e-6},
            "grad_clip": 10.0,
        },
    }
