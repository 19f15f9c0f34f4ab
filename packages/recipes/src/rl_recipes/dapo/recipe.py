"""``recipe=dapo``."""

from __future__ import annotations

from typing import Any


def dapo() -> dict[str, Any]:
    """The four techniques of the paper on GRPO, without any KL term.

    Clip-higher (section 3.1), dynamic sampling by accuracy (3.2), loss by token (3.3), soft overlong punishment (3.4). The
    lower bound of the clipped loss for negative advantages, which the paper does not have, is moved out of the way.
    """
    return {
        "algorithm": {
            "adv_estimator": "grpo",
            "norm_adv_by_std_in_grpo": True,
            "use_kl_in_reward": False,
            "filter_groups": {"enable": True, "metric": "acc", "max_num_gen_batches": 10},
        },
        "actor_rollout_ref": {
            "actor": {
                "clip_ratio_low": 0.2,
                "clip_ratio_high": 0.28,
                "clip_ratio_c": 10.0,
                "loss_agg_mode": "token-mean",
                "use_kl_loss": False,
                "entropy_coeff": 0.0,
            },
            "rollout": {"n": 16, "temperature": 1.0, "top_p": 1.0},
        },
        "reward_model": {
            "reward_manager": "dapo",
            "reward_kwargs": {"overlong_buffer_cfg": {"enable": True, "penalty_factor": 1.0, "log": True}},
        },
    }
