"""``algorithm.*``: advantages, the KL term in the reward, filters and corrections."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rl_core.config.node import Node, choice, number, plugin


@dataclass
class KLControllerConfig(Node):
    """Weight of the KL penalty in the reward."""

    type: str = choice("fixed", "fixed", "adaptive")
    """``fixed`` keeps ``kl_coef``; ``adaptive`` steers it towards ``target_kl``."""

    kl_coef: float = number(0.001, ge=0)
    """Weight, or first weight when adaptive."""

    horizon: int = number(10000, ge=1)
    """Samples over which the adaptive weight moves."""

    target_kl: float = number(0.1, gt=0)
    """KL divergence the adaptive weight aims at."""


@dataclass
class FilterGroupsConfig(Node):
    """Dynamic sampling: groups whose rewards are all equal teach nothing and are replaced."""

    enable: bool = False
    """Replace such groups."""

    metric: str = "reward"
    """Value that must differ within a group: ``reward``, or a key of ``reward_extra_info``."""

    max_num_gen_batches: int = number(0, ge=0)
    """Most batches generated for one step; 0 sets no limit."""

    max_inflight_gen_batches: int = number(1, ge=1)
    """Batches of replacements in flight."""


@dataclass
class PFPPOConfig(Node):
    """Resampling of a batch by its scores."""

    reweight_method: str = choice("pow", "pow", "max_min", "max_random")
    """How a row's weight follows from its score."""

    weight_pow: float = 2.0
    """Exponent of ``pow``."""


@dataclass
class RolloutCorrectionConfig(Node):
    """Correction for the gap between the sampler's and the training engine's log-probs."""

    rollout_is: str | None = choice(None, "token", "sequence")
    """Importance weights per token or per sequence; null uses none."""

    rollout_is_threshold: Any = 2.0
    """Cap of a weight, or ``lower_upper``: weights outside become 0."""

    rollout_is_batch_normalize: bool = False
    """Scale the weights to mean 1."""

    rollout_rs: str | None = None
    """Rejection rules, comma-separated, for example ``seq_mean_k1``; null rejects nothing."""

    rollout_rs_threshold: Any = None
    """Bounds of those rules: one for all, or one each."""

    bypass_mode: bool = False
    """Take the sampler's log-probs as old log-probs, and correct inside the loss."""

    loss_type: str = choice("ppo_clip", "ppo_clip", "reinforce")
    """Loss of the bypass mode."""


@dataclass
class AlgorithmConfig(Node):
    """How rewards become advantages."""

    adv_estimator: str = plugin("advantage", "gae")
    """Advantage estimator by name."""

    gamma: float = number(1.0, ge=0, le=1)
    """Discount per token."""

    lam: float = number(1.0, ge=0, le=1)
    """Trace decay of GAE; 1 is Monte Carlo minus baseline, 0 one-step TD."""

    norm_adv_by_std_in_grpo: bool = True
    """Divide a group's advantages by their standard deviation; off is Dr.GRPO."""

    use_kl_in_reward: bool = False
    """Subtract the KL divergence to the reference policy from the token rewards."""

    allow_kl_in_both: bool = False
    """Allow ``use_kl_in_reward`` together with ``actor.use_kl_loss``, which counts the divergence twice."""

    kl_penalty: str = plugin("kl_estimator", "kl")
    """Estimator of the divergence in the reward."""

    kl_ctrl: KLControllerConfig = field(default_factory=KLControllerConfig)
    """Weight of the divergence in the reward."""

    use_pf_ppo: bool = False
    """Resample each batch by its scores."""

    pf_ppo: PFPPOConfig = field(default_factory=PFPPOConfig)
    """How it is resampled."""

    filter_groups: FilterGroupsConfig = field(default_factory=FilterGroupsConfig)
    """Dynamic sampling."""

    rollout_correction: RolloutCorrectionConfig = field(default_factory=RolloutCorrectionConfig)
    """Correction for the sampler's log-probs."""

    gdpo_reward_keys: list[str] | None = None
    """``gdpo``: keys of ``reward_extra_info`` that are normalised one by one."""

    gdpo_reward_weights: list[float] | None = None
    """``gdpo``: their weights; null weighs them equally."""
