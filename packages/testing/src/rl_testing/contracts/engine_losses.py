"""Loss functions of the engine suite. Each is a plain sum over tokens, divided by a count of the whole mini-batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from rl_core.contracts.engine import TokenOutputs
from rl_core.metrics import Metric
from rl_dataproto import DataProto, pad_jagged
from torch import Tensor

from rl_testing.contracts.engine_columns import columns

ENTROPY_WEIGHT = 0.05


@dataclass(frozen=True)
class PolicyLoss:
    """-sum(advantage * log_prob + ENTROPY_WEIGHT * entropy) / num_tokens over masked-in tokens."""

    num_tokens: int
    outputs: frozenset[str] = frozenset({"log_probs", "entropy"})

    def __call__(self, outputs: TokenOutputs, micro_batch: DataProto) -> tuple[Tensor, Mapping[str, Metric]]:
        """See ``LossFunction``."""
        mask = outputs.response_mask
        advantages = _column(micro_batch, "advantages", mask)
        log_probs, entropy = _given(outputs, "log_probs"), _given(outputs, "entropy")
        gain = masked_sum(advantages * log_probs + ENTROPY_WEIGHT * entropy, mask)
        return -gain / self.num_tokens, {
            "entropy": Metric(float(masked_sum(entropy, mask).detach()) / self.num_tokens, "sum"),
            "longest": Metric(float(mask.sum(1).max()), "max"),
        }


@dataclass(frozen=True)
class ValueLoss:
    """sum((value - advantage)^2) / num_tokens over masked-in tokens."""

    num_tokens: int
    outputs: frozenset[str] = frozenset({"values"})

    def __call__(self, outputs: TokenOutputs, micro_batch: DataProto) -> tuple[Tensor, Mapping[str, Metric]]:
        """See ``LossFunction``."""
        mask = outputs.response_mask
        target = _column(micro_batch, "advantages", mask)
        return masked_sum((_given(outputs, "values") - target).square(), mask) / self.num_tokens, {}


@dataclass(frozen=True)
class ExplodingLoss:
    """A policy loss whose gradient is infinite where a row's ``marked`` column says so."""

    num_tokens: int
    outputs: frozenset[str] = frozenset({"log_probs"})

    def __call__(self, outputs: TokenOutputs, micro_batch: DataProto) -> tuple[Tensor, Mapping[str, Metric]]:
        """See ``LossFunction``."""
        mask = outputs.response_mask
        marked = columns(micro_batch)["marked"][:, None].expand_as(mask)
        log_probs = _given(outputs, "log_probs")
        factor = torch.where(marked, torch.inf, 1.0).to(log_probs.dtype)
        return -masked_sum(log_probs * factor, mask) / self.num_tokens, {}


@dataclass(frozen=True)
class Recorded:
    """One call of a loss function."""

    given: frozenset[str]
    requires_grad: frozenset[str]
    shapes: dict[str, tuple[int, ...]]
    mask: Tensor
    row_ids: list[int]
    response_lengths: list[int]
    attributes: tuple[str, ...]


@dataclass
class RecordingLoss:
    """Writes down what it is called with."""

    outputs: frozenset[str]
    calls: list[Recorded] = field(default_factory=list)

    def __call__(self, outputs: TokenOutputs, micro_batch: DataProto) -> tuple[Tensor, Mapping[str, Metric]]:
        """See ``LossFunction``."""
        tensors = {name: getattr(outputs, name) for name in ("log_probs", "entropy", "sum_pi_squared", "values")}
        given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
        mask = outputs.response_mask
        self.calls.append(
            Recorded(
                given=frozenset(given),
                requires_grad=frozenset(name for name, tensor in given.items() if tensor.requires_grad),
                shapes={name: tuple(tensor.shape) for name, tensor in given.items()},
                mask=mask.detach().cpu().clone(),
                row_ids=columns(micro_batch)["row_id"].tolist(),
                response_lengths=columns(micro_batch)["responses"].offsets().diff().tolist(),
                attributes=tuple(sorted(set(dir(outputs)) & {"logits", "hidden_states"})),
            )
        )
        loss = torch.stack([masked_sum(tensor, mask) for tensor in given.values()]).sum()
        return loss, {"rows": Metric(len(mask), "sum")}


def masked_sum(x: Tensor, mask: Tensor) -> Tensor:
    """Sum where ``mask`` is True; what stands elsewhere may be anything."""
    return torch.where(mask, x, torch.zeros_like(x)).sum()


def _given(outputs: TokenOutputs, name: str) -> Tensor:
    tensor: Tensor | None = getattr(outputs, name)
    if tensor is None:
        msg = f"the loss function asked for {name}, and the engine gave None"
        raise AssertionError(msg)
    return tensor


def _column(batch: DataProto, name: str, mask: Tensor) -> Tensor:
    return pad_jagged(columns(batch)[name], 0.0, length=mask.shape[1]).to(mask.device)
