"""``actor_rollout_ref.actor.*``: the policy update."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rl_core.config.node import Node, free_form, number, plugin
from rl_core.config.optim import CheckpointConfig, OptimConfig
from rl_core.config.profiler import RoleProfilerConfig
from rl_core.plugins.hints import DEFAULT_BACKEND


@dataclass
class PolicyLossConfig(Node):
    """Which policy loss, and the settings only one of them reads."""

    loss_mode: str = plugin("policy_loss", "vanilla")
    """Policy loss by name; ``vanilla`` is the clipped PPO objective."""

    clip_cov_ratio: float = number(2e-4, ge=0, le=1)
    """``clip_cov``: share of tokens whose gradient is dropped."""

    clip_cov_lb: float = 1.0
    """``clip_cov``: lower bound of the covariance of such tokens."""

    clip_cov_ub: float = 5.0
    """``clip_cov``: upper bound of the covariance of such tokens."""

    kl_cov_ratio: float = number(2e-4, ge=0, le=1)
    """``kl_cov``: share of tokens that get the penalty."""

    ppo_kl_coef: float = number(0.1, ge=0)
    """``kl_cov``: weight of the penalty."""

    dro_beta: float | None = number(None, gt=0)
    """``dro``: weight of the squared log-ratio; required there."""


@dataclass
class ActorConfig(Node):
    """Optimizer steps on the policy."""

    strategy: str = plugin("backend", DEFAULT_BACKEND)
    """Training engine (backend plugin) by name. Its own settings stand in its own section beside this key."""

    ppo_mini_batch_size: int = number(256, ge=1)
    """Prompts per optimizer step; times ``rollout.n`` responses. Divides ``data.train_batch_size``."""

    ppo_micro_batch_size: int | None = number(None, ge=1)
    """Responses per forward and backward pass over all workers together; use ``ppo_micro_batch_size_per_gpu``."""

    ppo_micro_batch_size_per_gpu: int | None = number(None, ge=1)
    """Responses per forward and backward pass on one worker. Changes memory and speed, never a number."""

    use_dynamic_bsz: bool | None = None
    """Pack passes by tokens instead of by responses; null turns it on when no micro-batch size is given."""

    ppo_max_token_len_per_gpu: int = number(16384, ge=1)
    """Tokens per forward and backward pass on one worker, when packing by tokens. It bounds the memory of a pass; where the
    engine has no kernel for packed sequences, the cost of attention grows with its square."""

    ppo_epochs: int = number(1, ge=1)
    """Passes over a step's responses."""

    shuffle: bool = False
    """Assign prompts to mini-batches in random order instead of batch order."""

    data_loader_seed: int = 42
    """Seed of that order, together with step and epoch."""

    clip_ratio: float = number(0.2, ge=0)
    """Clip range of the probability ratio, both sides, unless the next two say otherwise."""

    clip_ratio_low: float | None = number(None, ge=0)
    """Clip range below 1; null takes ``clip_ratio``."""

    clip_ratio_high: float | None = number(None, ge=0)
    """Clip range above 1; null takes ``clip_ratio``."""

    clip_ratio_c: float = number(3.0, gt=1)
    """Cap of the ratio for negative advantages (dual clip)."""

    tau_pos: float = number(1.0, gt=0)
    """``sapo``: temperature for positive advantages."""

    tau_neg: float = number(1.05, gt=0)
    """``sapo``: temperature for negative advantages."""

    policy_loss: PolicyLossConfig = field(default_factory=PolicyLossConfig)
    """Policy loss."""

    loss_agg_mode: str = plugin("loss_aggregation", "token-mean")
    """How token losses become one number, counted over the whole mini-batch."""

    loss_scale_factor: float | None = number(None, gt=0)
    """Divisor of ``seq-mean-token-sum-norm``; null takes ``data.max_response_length``."""

    entropy_coeff: float = 0.0
    """Weight of the entropy bonus."""

    calculate_entropy: bool = False
    """Compute the entropy for the log even when its weight is 0."""

    calculate_sum_pi_squared: bool | None = None
    """Compute, with the old log-probs, each token's sum of squared probabilities over the vocabulary, which optimal-baseline
    estimators need; null turns it on for those."""

    use_kl_loss: bool = False
    """Add the KL divergence to the reference policy to the loss."""

    kl_loss_coef: float = number(0.001, ge=0)
    """Weight of that term."""

    kl_loss_type: str = plugin("kl_estimator", "low_var_kl")
    """Estimator of that term; a trailing ``+`` takes its gradient from ``k2``."""

    grad_clip: float = number(1.0, gt=0)
    """Largest gradient norm; a longer gradient is scaled down."""

    ulysses_sequence_parallel_size: int = number(1, ge=1)
    """Workers that share one sequence."""

    use_torch_compile: bool = True
    """Compile the log-prob and entropy kernels."""

    entropy_from_logits_with_chunking: bool = False
    """Compute the entropy in chunks of the sequence, to save memory."""

    entropy_from_logits_chunk_size: int = number(2048, ge=1)
    """Tokens per such chunk."""

    entropy_checkpointing: bool = False
    """Recompute the entropy in the backward pass, to save memory."""

    pad_to_length: bool = False
    """Pad packed passes to a fixed length, for kernels compiled for one shape."""

    use_prefix_grouper: bool = False
    """Compute the shared prompt of a group once."""

    freeze_vision_tower: bool = False
    """Leave the vision part of a multi-modal model untrained."""

    use_rollout_log_probs: bool = False
    """Take the sampler's log-probs as old log-probs instead of recomputing them with the training engine."""

    router_replay: dict[str, Any] = free_form()
    """Replay of the generation engine's expert choices, for mixture-of-experts models."""

    optim: OptimConfig = field(default_factory=OptimConfig)
    """Optimizer of the policy."""

    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    """Checkpoint of the policy."""

    profiler: RoleProfilerConfig = field(default_factory=RoleProfilerConfig)
    """Profiling of this role."""
