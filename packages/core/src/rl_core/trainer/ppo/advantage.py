"""The advantage line of the loop: KL penalty in the reward, then the chosen estimator, on the controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from rl_dataproto import DataProto, lengths, pad_jagged, to_jagged

from rl_core.algorithms.inputs import AdvantageInputs
from rl_core.algorithms.kl import apply_kl_to_rewards
from rl_core.metrics import Metric
from rl_core.workers.losses import kl_estimator

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.kl_controller import KLController
    from rl_core.config import AlgorithmConfig
    from rl_core.plugins import Registry

AdvantageFunction = Callable[[AdvantageInputs, Any], "tuple[Tensor, Tensor]"]


def compute_advantage(
    batch: DataProto, algorithm: AlgorithmConfig, kl_controller: KLController | None, registry: Registry
) -> tuple[DataProto, dict[str, Metric]]:
    """Add ``token_level_rewards``, ``advantages`` and ``returns`` (jagged float32 or float64).

    Args:
        batch: jagged ``response_mask``, ``token_level_scores``; ``values``, ``old_log_probs`` and ``ref_log_prob`` where
            the estimator or the KL penalty needs them; object ``uid``.
        algorithm: the ``algorithm`` section.
        kl_controller: weighs the KL penalty in the reward and adapts to what is met; None without that penalty.
        registry: finds the estimator.
    """
    mask = pad_jagged(batch.batch["response_mask"], 0).bool()
    columns = {name: _padded(batch, name, mask) for name in ("token_level_scores", "values")}
    rewards = columns["token_level_scores"]
    metrics: dict[str, Metric] = {}
    if kl_controller is not None:
        log_probs, ref = _padded(batch, "old_log_probs", mask), _padded(batch, "ref_log_prob", mask)
        coefficient = kl_controller.value
        estimator = kl_estimator(algorithm.kl_penalty, registry)
        rewards, mean_kl = apply_kl_to_rewards(rewards, log_probs, ref, mask, coefficient, estimator)
        kl_controller.update(float(mean_kl), len(batch))
        metrics["actor/reward_kl_penalty"] = Metric(float(mean_kl), "last", keep_nan=True)
        metrics["actor/reward_kl_penalty_coeff"] = Metric(coefficient, "last")
    advantage = cast("AdvantageFunction", registry.load("advantage", algorithm.adv_estimator))
    inputs = AdvantageInputs(
        token_level_rewards=rewards,
        response_mask=mask,
        uid=batch.non_tensor_batch["uid"],
        values=columns["values"],
    )
    advantages, returns = advantage(inputs, algorithm)
    widths = lengths(batch.batch["response_mask"])
    computed = {"token_level_rewards": rewards, "advantages": advantages, "returns": returns}
    added = DataProto.from_dict(tensors={name: to_jagged(column, widths) for name, column in computed.items()})
    return batch.union(added), metrics


def _padded(batch: DataProto, name: str, mask: Tensor) -> Any:
    """A jagged column as [B, T], or None where the batch has no such column."""
    if name not in batch.batch.keys():  # noqa: SIM118 - a TensorDict
        return None
    return pad_jagged(batch.batch[name], 0.0, length=mask.shape[1])
