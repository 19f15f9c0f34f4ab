"""Several rewards, each normalised within its group before they are added: GDPO."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from rl_core.algorithms.groups import relative_scores, require_uid
from rl_core.algorithms.masks import masked_whiten, spread_over_mask
from rl_core.algorithms.rewards import sequence_rewards
from rl_core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.algorithms.inputs import AdvantageInputs

PREFIX = "reward_extra/"


class GDPOConfig(Protocol):
    """The keys of ``algorithm`` that GDPO reads."""

    @property
    def gdpo_reward_keys(self) -> list[str] | None:
        """Keys of ``reward_extra_info``, one a component."""
        ...

    @property
    def gdpo_reward_weights(self) -> list[float] | None:
        """One weight a key; None weighs them equally."""
        ...

    @property
    def norm_adv_by_std_in_grpo(self) -> bool:
        """True divides each component by its group's standard deviation, as the paper does."""
        ...


@torch.no_grad()
def gdpo(inputs: AdvantageInputs, config: GDPOConfig) -> tuple[Tensor, Tensor]:
    """Weighted sum of the group-relative components, whitened over the responses of the batch.

    ``sum_k w_k (R_k - mean_k) / (std_k + 1e-6)`` over the group, then minus its mean over all responses of the batch and
    divided by its deviation (unbiased variance + 1e-8). The token rewards tell only which rows have a reward; their sum,
    and a KL penalty in it, is not read.

    Degenerate input:
        a component that is equal throughout a group: exactly 0 from that component.
        one usable row in a group: each component's mean 0 and standard deviation 1 stand in.
        everything equal, or one response in the batch: exactly 0 after whitening.
        a missing component (absent, None, NaN), missing reward or fully masked row: the row has advantage 0 and enters
        no statistic, of the other components neither.

    Args:
        inputs: whole groups; ``uid`` and the object columns ``extras["reward_extra/<key>"]`` are needed.
        config: ``gdpo_reward_keys``, ``gdpo_reward_weights``, ``norm_adv_by_std_in_grpo``.

    Returns:
        advantages [B, T] float32 or float64, 0.0 where masked; returns [B, T], equal to the advantages.

    Raises:
        ConfigError: there are no keys, or not as many weights as keys.
        DataError: no row has a key, or an entry is no number; ``uid`` is None or cannot be compared.

    Source: Liu et al. 2026, arXiv:2601.05242, group-wise decoupled normalization, then batch-wise normalization.
    """
    weights = _weights(config)
    uid = require_uid(inputs.uid, "gdpo")
    scores, usable = sequence_rewards(inputs.token_level_rewards, inputs.response_mask)
    components = {key: _component(inputs, key).to(scores.device) for key in weights}
    for component in components.values():
        usable = usable & torch.isfinite(component)
    total = torch.zeros_like(scores, dtype=torch.float64)
    for key, component in components.items():
        total += weights[key] * relative_scores(component, usable, uid, by_std=config.norm_adv_by_std_in_grpo)
    advantages = spread_over_mask(masked_whiten(total, usable).to(scores.dtype), inputs.response_mask)
    return advantages, advantages.clone()


def _weights(config: GDPOConfig) -> dict[str, float]:
    keys = config.gdpo_reward_keys or []
    weights = [1.0] * len(keys) if config.gdpo_reward_weights is None else config.gdpo_reward_weights
    if not keys or len(set(keys)) != len(keys) or len(weights) != len(keys):
        msg = (
            "gdpo needs algorithm.gdpo_reward_keys, each once, and as many algorithm.gdpo_reward_weights or none; found "
            f"keys {list(keys)} and weights {config.gdpo_reward_weights}."
        )
        raise ConfigError(msg)
    return dict(zip(keys, map(float, weights), strict=True))


def _component(inputs: AdvantageInputs, key: str) -> Tensor:
    """[B] float64, NaN where the row has none."""
    name = PREFIX + key
    column = inputs.extras.get(name, ())
    values = torch.tensor([_number(key, entry) for entry in column], dtype=torch.float64)
    if name not in inputs.extras or (len(values) and bool(torch.isnan(values).all())):
        there = sorted(column.removeprefix(PREFIX) for column in inputs.extras if column.startswith(PREFIX))
        msg = (
            f"algorithm.gdpo_reward_keys names {key!r}, which no row's reward gives; found {', '.join(there) or 'none'}. "
            "Return it from the reward function beside 'score', or name another key."
        )
        raise DataError(msg)
    return values


def _number(key: str, entry: object) -> float:
    if entry is None:
        return float("nan")
    if isinstance(entry, bool | int | float | np.number | np.bool_):
        return float(entry)
    msg = f"algorithm.gdpo_reward_keys names {key!r}, which must hold numbers; found {type(entry).__name__} {entry!r}."
    raise DataError(msg)
