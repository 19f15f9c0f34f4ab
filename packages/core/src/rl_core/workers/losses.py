"""The loss functions of the two updates: they glue pure algorithms to per-token outputs.

Each returns this micro-batch's *share* of the loss: divided by the totals of the whole mini-batch, so shares add up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import torch
from rl_dataproto import pad_jagged

from rl_core.algorithms.aggregation import token_mean
from rl_core.algorithms.inputs import PolicyLossInputs, PolicyLossOutputs, TokenMetric, ValueLossInputs
from rl_core.algorithms.kl import KLEstimator, kl_penalty, straight_through
from rl_core.algorithms.policy_losses.ratio import log_ratio
from rl_core.algorithms.rollout_correction.bypass import bypass_loss
from rl_core.algorithms.token_metrics import metric_share
from rl_core.algorithms.value_loss import value_loss
from rl_core.config.correction import parse_correction
from rl_core.metrics import Metric

if TYPE_CHECKING:
    from rl_dataproto import DataProto
    from torch import Tensor

    from rl_core.algorithms.inputs import LossTotals
    from rl_core.algorithms.rollout_correction.diagnostics import Shares
    from rl_core.config.algorithm import RolloutCorrectionConfig
    from rl_core.contracts.engine import TokenOutputs
    from rl_core.plugins import Registry

PolicyLossFunction = Callable[[PolicyLossInputs, Any], PolicyLossOutputs]
AggregationFunction = Callable[..., "Tensor"]

PREPARED_COLUMN = "policy_loss_prepared"
"""Jagged column: what the policy loss's ``prepare`` made of the whole step."""


class PolicyLoss:
    """Policy loss, entropy bonus and KL loss of one micro-batch.

    loss = aggregate(policy) - entropy_coeff * aggregate(entropy) + kl_loss_coef * aggregate(kl)
    """

    def __init__(
        self,
        config: Any,
        totals: LossTotals,
        registry: Registry,
        correction: RolloutCorrectionConfig | None = None,
    ) -> None:
        """Look up the configured functions.

        Args:
            config: the ``actor`` section.
            totals: of the whole mini-batch.
            registry: finds policy loss and aggregation by name.
            correction: ``algorithm.rollout_correction``; with its ``bypass_mode`` the loss itself corrects.
        """
        self._bypass = parse_correction(correction) if correction is not None and correction.bypass_mode else None
        self._config = config
        self._totals = totals
        self._policy_loss = cast("PolicyLossFunction", registry.load("policy_loss", config.policy_loss.loss_mode))
        self._aggregation = cast("AggregationFunction", registry.load("loss_aggregation", config.loss_agg_mode))
        self._kl_estimator = kl_estimator(config.kl_loss_type, registry)
        wants_entropy = config.entropy_coeff != 0 or config.calculate_entropy
        self.outputs = frozenset({"log_probs", "entropy"} if wants_entropy else {"log_probs"})

    def __call__(self, outputs: TokenOutputs, micro_batch: DataProto) -> tuple[Tensor, Mapping[str, Metric]]:
        """See ``LossFunction``."""
        mask = outputs.response_mask
        log_prob = _present(outputs.log_probs, "log_probs")
        inputs = PolicyLossInputs(
            log_prob=log_prob,
            old_log_prob=_column(micro_batch, "old_log_probs", mask),
            advantages=_column(micro_batch, "advantages", mask),
            response_mask=mask,
            totals=self._totals,
            rollout_is_weights=_optional_column(micro_batch, "rollout_is_weights", mask),
            rollout_log_prob=_optional_column(micro_batch, "rollout_log_probs", mask),
            ref_log_prob=_optional_column(micro_batch, "ref_log_prob", mask),
            entropy=outputs.entropy,
            prepared=_optional_column(micro_batch, PREPARED_COLUMN, mask),
        )
        result, corrected = self._policy_terms(inputs)
        loss = self._aggregate(result.token_loss, mask)
        metrics = {"actor/pg_loss": _share(loss)}
        if outputs.entropy is not None:
            entropy = self._aggregate(outputs.entropy, mask)
            loss = loss - self._config.entropy_coeff * entropy
            metrics["actor/entropy"] = _share(entropy)
        if self._config.use_kl_loss:
            ref_log_prob = _column(micro_batch, "ref_log_prob", mask)
            kl = self._aggregate(kl_penalty(log_prob, ref_log_prob, self._kl_estimator), mask)
            loss = loss + self._config.kl_loss_coef * kl
            metrics["actor/kl_loss"] = _share(kl)
            metrics["actor/kl_coef"] = Metric(self._config.kl_loss_coef, "last")
        measured = _ratio_metrics(inputs) | result.metrics
        metrics |= _token_metrics("actor", measured, mask, self._totals)
        return loss, metrics | corrected

    def _policy_terms(self, inputs: PolicyLossInputs) -> tuple[PolicyLossOutputs, dict[str, Metric]]:
        """The policy loss of each token and, where it corrects, what that did."""
        if self._bypass is None:
            return self._policy_loss(inputs, self._config), {}
        result, shares = bypass_loss(inputs, self._bypass, lambda changed: self._policy_loss(changed, self._config))
        return result, correction_metrics(shares)

    def _aggregate(self, token_loss: Tensor, mask: Tensor) -> Tensor:
        return self._aggregation(token_loss, mask, self._totals, self._config.loss_scale_factor)


class ValueLoss:
    """Clipped value loss of one micro-batch."""

    outputs = frozenset({"values"})

    def __init__(self, config: Any, totals: LossTotals, registry: Registry) -> None:
        """As ``PolicyLoss``, with the ``critic`` section."""
        self._config = config
        self._totals = totals
        self._aggregation = cast("AggregationFunction", registry.load("loss_aggregation", config.loss_agg_mode))

    def __call__(self, outputs: TokenOutputs, micro_batch: DataProto) -> tuple[Tensor, Mapping[str, Metric]]:
        """See ``LossFunction``."""
        mask = outputs.response_mask
        result = value_loss(
            ValueLossInputs(
                values=_present(outputs.values, "values"),
                old_values=_column(micro_batch, "values", mask),
                returns=_column(micro_batch, "returns", mask),
                response_mask=mask,
                totals=self._totals,
            ),
            self._config,
        )
        loss = self._aggregation(result.token_loss, mask, self._totals, None)
        metrics = {"critic/vf_loss": _share(loss)}
        return loss, metrics | _token_metrics("critic", result.metrics, mask, self._totals)


class SFTLoss:
    """Negative log-likelihood of one micro-batch: the mean over every learned token of the whole batch.

    loss = -(1 / num_tokens) * sum over learned tokens of log p(token | what stands before it)
    """

    outputs = frozenset({"log_probs"})

    def __init__(self, totals: LossTotals) -> None:
        """Store the totals of the whole batch."""
        self._totals = totals

    def __call__(self, outputs: TokenOutputs, micro_batch: DataProto) -> tuple[Tensor, Mapping[str, Metric]]:
        """See ``LossFunction``."""
        log_prob = _present(outputs.log_probs, "log_probs")
        return token_mean(-log_prob, outputs.response_mask, self._totals), {}


def correction_metrics(shares: Shares) -> dict[str, Metric]:
    """Shares of the diagnostics of the rollout correction, under ``rollout_corr/``."""
    # One transfer from the device for all of them.
    values = torch.stack([value.double() for value, _ in shares.values()]).tolist() if shares else []
    named = zip(shares.items(), values, strict=True)
    return {f"rollout_corr/{name}": Metric(value, reduce) for (name, (_, reduce)), value in named}


def kl_estimator(name: str, registry: Registry) -> KLEstimator:
    """A KL estimator by name; a trailing ``+`` gives it the gradient of ``k2``."""
    estimator = cast("KLEstimator", registry.load("kl_estimator", name.removesuffix("+")))
    return straight_through(estimator) if name.endswith("+") else estimator


def _ratio_metrics(inputs: PolicyLossInputs) -> dict[str, TokenMetric]:
    """How far the policy has left the one that the step began with; ``actor/ess`` is made of the two moments."""
    ratio = log_ratio(inputs).detach().exp()
    return {
        "ratio_mean": TokenMetric(ratio),
        "ratio_square_mean": TokenMetric(ratio.square()),
        "ratio_max": TokenMetric(ratio, "max"),
    }


def _present(tensor: Tensor | None, name: str) -> Tensor:
    if tensor is None:
        msg = f"the engine did not return {name}, which this loss asked for in its `outputs`: a fault of the engine"
        raise RuntimeError(msg)
    return tensor


def _column(batch: DataProto, name: str, mask: Tensor) -> Tensor:
    """A jagged column as [B, T], T as wide as ``mask``."""
    return pad_jagged(batch.batch[name], 0.0, length=mask.shape[1])


def _optional_column(batch: DataProto, name: str, mask: Tensor) -> Tensor | None:
    return _column(batch, name, mask) if name in batch.batch.keys() else None  # noqa: SIM118 - a TensorDict


def _share(value: Tensor) -> Metric:
    return Metric(float(value.detach()), "sum", keep_nan=True)


def _token_metrics(
    prefix: str, metrics: Mapping[str, TokenMetric], mask: Tensor, totals: LossTotals
) -> dict[str, Metric]:
    shares = {}
    for name, metric in metrics.items():
        share = metric_share(metric, mask, totals)
        if share is not None:
            value, reduce = share
            shares[f"{prefix}/{name}"] = Metric(float(value), reduce)
    return shares


def mask_of(batch: DataProto) -> Tensor:
    """[B, T] bool response mask of a batch with a jagged ``response_mask``."""
    return pad_jagged(batch.batch["response_mask"], 0).to(torch.bool)
