"""The keys of PRIME: ``reward_model.prime`` and ``algorithm.prime``. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from rl_core.config.node import Node, choice, number


@dataclass
class ImplicitRewardConfig(Node):
    """The implicit process reward."""

    ref_path: str | None = None
    """Model whose log-probs are subtracted, never trained; null takes ``reward_model.model.path``."""

    beta: float = number(0.05, gt=0)
    """Scale of the reward: beta times the difference of the two log-probs."""


@dataclass
class PrimeAdvantageConfig(Node):
    """How process and outcome rewards become one advantage."""

    reward_gt_coef: float = number(1.0, ge=0)
    """Weight of the outcome, the reward function's score."""

    reward_dpo_coef: float = number(1.0, ge=0)
    """Weight of the process rewards."""

    granularity: str = choice("token", "token", "whole")
    """``token`` credits each token with its process reward; ``whole`` their sum to the whole response."""

    norm: str = choice("none", "none", "batch_norm")
    """``batch_norm`` divides the process rewards by the largest of their sums to the end of a response in the batch."""

    whiten: bool = False
    """Scale the advantages of the batch to mean 0 and variance 1."""
