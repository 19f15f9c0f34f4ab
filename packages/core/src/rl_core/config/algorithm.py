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
    """Draw on until a step has ``data.train_batch_size`` groups that differ."""

    metric: str = "reward"
    """Value that must differ within a group: ``reward`` (also ``score``, ``seq_reward``, ``seq_final_reward``), the reward
    before any KL penalty, or a number that the reward function returns beside its score, such as ``acc``."""

    max_num_gen_batches: int = number(0, ge=0)
    """Most generations of ``data.gen_batch_size`` prompts for one step, after which the run stops; 0 sets no limit."""

    max_inflight_gen_batches: int = number(1, ge=1)
    """No effect: the generations of a step follow one another."""


@dataclass
class PFPPOConfig(Node):
    """Drawing the rows to train on again, by their scores."""

    reweight_method: str = choice("pow", "pow", "max_min", "max_random")
    """``pow`` weighs a row by its score's size; ``max_min`` keeps the best and the worst responses to a prompt;
    ``max_random`` prefers the best."""

    weight_pow: float = number(2.0, ge=0)
    """Exponent of ``pow``."""


@dataclass
class RolloutCorrectionConfig(Node):
    """Correction for the gap between the sampler's and the training engine's log-probs."""

    rollout_is: str | None = choice(None, "token", "sequence")
    """Importance weights of the policy against the generator, per token or per response; null uses none."""

    rollout_is_threshold: Any = 2.0
    """Cap of a weight, or ``lower_upper``: weights outside become 0. Write 0.5_2.0: 0.5_2 reads as 0.52."""

    rollout_is_batch_normalize: bool = False
    """Scale the weights of a step to mean 1 over what is trained."""

    rollout_rs: str | None = None
    """Rejection rules, comma-separated: ``token_``, ``seq_sum_``, ``seq_mean_`` with k1, k2 or k3, ``seq_max_`` with k2 or
    k3. Null rejects nothing."""

    rollout_rs_threshold: Any = None
    """Bounds of those rules, one for all or one each: k1 takes ``lower_upper`` or the upper ratio, k2 and k3 the largest
    distance."""

    bypass_mode: bool = False
    """Take the sampler's log-probs as old log-probs, without re-scoring after the first step, and correct inside the
    loss."""

    loss_type: str = choice("ppo_clip", "ppo_clip", "reinforce")
    """Loss of the bypass mode: the configured policy loss, whose ratio is against the sampler, or the weighted policy
    gradient without clipping."""


@dataclass
class AlgorithmConfig(Node):
    """How rewards become advantages."""

    adv_estimator: str = plugin("advantage", "gae")
    """Advantage estimator by name."""

    gamma: float = number(1.0, ge=0, le=1)
    """Discount per token, of ``gae`` and ``reinforce_plus_plus``."""

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
    """Draw the rows to train on again, by their scores, once advantages are there; with any estimator."""

    pf_ppo: PFPPOConfig = field(default_factory=PFPPOConfig)
    """How they are drawn."""

    filter_groups: FilterGroupsConfig = field(default_factory=FilterGroupsConfig)
    """Dynamic sampling."""

    rollout_correction: RolloutCorrectionConfig = field(default_factory=RolloutCorrectionConfig)
    """Correction for the sampler's log-probs."""

    gdpo_reward_keys: list[str] | None = None
    """``gdpo``: keys of ``reward_extra_info`` that are normalised one by one."""

    gdpo_reward_weights: list[float] | None = None
    """``gdpo``: their weights; null weighs them equally."""
