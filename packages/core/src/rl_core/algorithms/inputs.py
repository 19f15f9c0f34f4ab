"""What flows into and out of advantage estimators and losses: records of ``[B, T]`` tensors.

A new input is a new field or a key of ``extras``; no signature changes. Shapes are checked when a record is made, so
the functions start with their equations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from rl_core.algorithms.checks import require_mask, require_same_shape
from rl_core.errors import ConfigError, ShapeError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

TokenReduce = Literal["mean", "sum", "max", "min"]


@dataclass(frozen=True)
class LossTotals:
    """What the WHOLE mini-batch holds: all ranks and all micro-batches of one optimizer step.

    Travels with the mini-batch plan. A loss never counts what it sees: the rows in front of it are only a shard.

    Attributes:
        num_tokens: masked-in response tokens.
        num_sequences: rows with at least one masked-in token; a fully masked row is no sequence.
        max_response_length: the configured limit on response tokens, not the padded width of any batch.

    Raises:
        ConfigError: a count is negative, or max_response_length is below 1.
    """

    num_tokens: int
    num_sequences: int
    max_response_length: int

    def __post_init__(self) -> None:
        if self.num_tokens < 0 or self.num_sequences < 0 or self.max_response_length < 1:
            msg = (
                f"loss totals must not be negative and max_response_length must be at least 1; found {self}. "
                "Take them from the mini-batch plan."
            )
            raise ConfigError(msg)

    @classmethod
    def of(cls, response_mask: Tensor, max_response_length: int) -> LossTotals:
        """Count a mask that holds every row of the mini-batch.

        Args:
            response_mask: [B, T] bool, all rows of one optimizer step.
            max_response_length: the configured limit on response tokens.

        Raises:
            ShapeError: the mask is not a bool tensor of rank 2.
            ConfigError: max_response_length is below 1.
        """
        require_mask(response_mask)
        return cls(int(response_mask.count_nonzero()), int(response_mask.any(dim=1).sum()), max_response_length)


@dataclass(frozen=True, eq=False)
class TokenMetric:
    """What a loss measured at each token, and how tokens become one number.

    Attributes:
        values: [B, T], detached; masked positions are ignored.
        reduce: "mean" over the tokens of the mini-batch, "sum", "max" or "min".
    """

    values: Tensor
    reduce: TokenReduce = "mean"


@dataclass(frozen=True, eq=False, kw_only=True)
class AdvantageInputs:
    """The whole batch as an advantage estimator sees it, every row of every group.

    Attributes:
        token_level_rewards: [B, T] float, reward credited at each response token, KL penalty already subtracted. An
            outcome reward stands on the last True position of the row's mask: what stands at a masked position is
            ignored. NaN at a masked-in position says that the row's reward is missing.
        response_mask: [B, T] bool, True where the policy emitted the token; False at padding and tool output.
        uid: [B] array naming the prompt of each row; rows with equal uid form a group. None without groups.
        values: [B, T] float, critic estimate before each token is emitted. None without a critic.
        extras: the batch's other columns by name, padded when they are asked for; only single estimators do.
            [B, T] float: ``old_log_probs``, ``rollout_log_probs``, ``sum_pi_squared``, ``rollout_is_weights``,
            ``rm_scores`` (process rewards). [B] float: ``reward_baselines``, the reward of the greedy response, NaN when
            missing. [B] object: ``reward_extra/<key>``, what the reward function gave beside the score, None when it did
            not. In a run an absent name raises DataError; ``in`` and ``get`` ask for one that may be absent.

    Raises:
        ShapeError: shapes differ, the mask is not bool of rank 2, or ``uid`` does not have one entry a row.
    """

    token_level_rewards: Tensor
    response_mask: Tensor
    uid: np.ndarray | None = None
    values: Tensor | None = None
    extras: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        mask = self.response_mask
        require_mask(mask)
        require_same_shape("token_level_rewards", self.token_level_rewards, "response_mask", mask)
        if self.values is not None:
            require_same_shape("values", self.values, "response_mask", mask)
        if self.uid is not None and self.uid.shape != (mask.shape[0],):
            msg = (
                f"uid must name the prompt of every row, shape ({mask.shape[0]},); found {self.uid.shape}, "
                f"response_mask {tuple(mask.shape)}. Repeat each prompt's uid for all its responses."
            )
            raise ShapeError(msg)


@dataclass(frozen=True, eq=False, kw_only=True)
class PolicyLossInputs:
    """One shard of a mini-batch as a policy loss sees it.

    Attributes:
        log_prob: [B, T] float, log-prob of each response token under the policy in training; the gradient flows here.
        old_log_prob: [B, T] float, the same under the policy at the start of the step (training engine).
        advantages: [B, T] float.
        response_mask: [B, T] bool.
        totals: counts of the whole mini-batch.
        rollout_is_weights: [B, T] float, importance weights against the generation engine; None means 1.
        rollout_log_prob: [B, T] float, log-prob under the policy that drew the token, as the generation engine says.
        ref_log_prob: [B, T] float, log-prob under the reference policy, for losses that hold their own KL term.
        entropy: [B, T] float, entropy of the policy at each token, with gradient, for losses that weigh by it.
        prepared: [B, T], what the loss's ``prepare`` made of the whole step; None where the loss has none.

    Raises:
        ShapeError: shapes differ, or the mask is not bool of rank 2.
    """

    log_prob: Tensor
    old_log_prob: Tensor
    advantages: Tensor
    response_mask: Tensor
    totals: LossTotals
    rollout_is_weights: Tensor | None = None
    rollout_log_prob: Tensor | None = None
    ref_log_prob: Tensor | None = None
    entropy: Tensor | None = None
    prepared: Tensor | None = None

    def __post_init__(self) -> None:
        require_mask(self.response_mask)
        for name in (
            "log_prob",
            "old_log_prob",
            "advantages",
            "rollout_is_weights",
            "rollout_log_prob",
            "ref_log_prob",
            "entropy",
            "prepared",
        ):
            tensor = getattr(self, name)
            if tensor is not None:
                require_same_shape(name, tensor, "response_mask", self.response_mask)


@dataclass(frozen=True, eq=False, kw_only=True)
class PrepareInputs:
    """Every row of a trainer step, as the ``prepare`` of a policy loss sees it on the controller, before the update.

    Attributes:
        old_log_prob: [B, T] float, log-prob of each response token under the policy at the start of the step.
        advantages: [B, T] float.
        response_mask: [B, T] bool.
        seed: what a draw may depend on: run and step, nothing that says how the work is cut.

    Raises:
        ShapeError: shapes differ, or the mask is not bool of rank 2.
    """

    old_log_prob: Tensor
    advantages: Tensor
    response_mask: Tensor
    seed: tuple[int, ...]

    def __post_init__(self) -> None:
        require_mask(self.response_mask)
        for name in ("old_log_prob", "advantages"):
            require_same_shape(name, getattr(self, name), "response_mask", self.response_mask)


@dataclass(frozen=True, eq=False)
class PolicyLossOutputs:
    """The policy loss of each token, before aggregation.

    Attributes:
        token_loss: [B, T] float32 or float64, with gradient, 0.0 where masked.
        metrics: per-token measurements by name.
    """

    token_loss: Tensor
    metrics: dict[str, TokenMetric]


@dataclass(frozen=True, eq=False, kw_only=True)
class ValueLossInputs:
    """One shard of a mini-batch as the value loss sees it.

    Attributes:
        values: [B, T] float, estimates of the critic in training; the gradient flows here.
        old_values: [B, T] float, its estimates at the start of the step.
        returns: [B, T] float, the targets.
        response_mask: [B, T] bool.
        totals: counts of the whole mini-batch.

    Raises:
        ShapeError: shapes differ, or the mask is not bool of rank 2.
    """

    values: Tensor
    old_values: Tensor
    returns: Tensor
    response_mask: Tensor
    totals: LossTotals

    def __post_init__(self) -> None:
        require_mask(self.response_mask)
        for name in ("values", "old_values", "returns"):
            require_same_shape(name, getattr(self, name), "response_mask", self.response_mask)


@dataclass(frozen=True, eq=False)
class ValueLossOutputs:
    """The value loss of each token, before aggregation.

    Attributes:
        token_loss: [B, T] float32 or float64, with gradient, 0.0 where masked.
        metrics: per-token measurements by name.
    """

    token_loss: Tensor
    metrics: dict[str, TokenMetric]
