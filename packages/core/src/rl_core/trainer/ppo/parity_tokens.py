"""The tokens of a batch that generator and trainer have both scored, one entry each: what every parity number is about."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from rl_dataproto import pad_jagged

from rl_core.workers.rollout_rows import VERSIONS_KEY

if TYPE_CHECKING:
    from rl_dataproto import DataProto
    from torch import Tensor

UNKNOWN = -1
"""Version of a token whose weights the batch does not name, and id of one whose response it does not hold."""


@dataclass(frozen=True, slots=True)
class ParityTokens:
    """Trained tokens with both log-probs. All [N]; log-probs and moments are float64, in nats.

    Attributes:
        rollout: log-prob that the generator reported.
        trainer: log-prob that the training engine computed.
        row: int64, row of the batch.
        position: int64, place in the response, 0 for its first token.
        token: int64, id.
        is_current: bool, whether the weights that are trained now drew it.
        version: int64, policy version that drew it.
        entropy: of the trainer's distribution at the token; None where it was not computed.
        sum_pi_squared: sum of that distribution's squared probabilities; None where it was not computed.
    """

    rollout: Tensor
    trainer: Tensor
    row: Tensor
    position: Tensor
    token: Tensor
    is_current: Tensor
    version: Tensor
    entropy: Tensor | None = None
    sum_pi_squared: Tensor | None = None

    def __len__(self) -> int:
        return len(self.rollout)

    @property
    def log_ratio(self) -> Tensor:
        """Log-prob of the generator less that of the trainer."""
        return self.rollout - self.trainer

    @property
    def gap(self) -> Tensor:
        """Distance of the two log-probs, never negative."""
        return self.log_ratio.abs()

    def where(self, keep: Tensor) -> ParityTokens:
        """The tokens at which ``keep``, [N] bool, is True."""
        columns: dict[str, Any] = {}
        for field in fields(self):
            column = getattr(self, field.name)
            columns[field.name] = None if column is None else column[keep]
        return ParityTokens(**columns)

    def finite(self) -> ParityTokens:
        """Those whose log-probs are numbers on both sides."""
        return self.where(self.log_ratio.isfinite())


def parity_tokens(batch: DataProto) -> ParityTokens | None:
    """Every trained token of ``batch``; None when one side reports no log-probs.

    Args:
        batch: jagged ``response_mask``, ``rollout_log_probs``, ``old_log_probs``; optionally ``responses``, ``on_policy_mask``,
            ``entropy``, ``sum_pi_squared``, and ``version_spans`` or ``weight_version``.
    """
    keys = set(batch.batch.keys())
    if not {"rollout_log_probs", "old_log_probs"} <= keys:
        return None
    mask = pad_jagged(batch.batch["response_mask"], 0).bool()
    rows, width = mask.shape

    def column(name: str) -> Tensor:
        return pad_jagged(batch.batch[name], 0, length=width)[mask]

    def moment(name: str) -> Tensor | None:
        return column(name).double() if name in keys else None

    rollout = column("rollout_log_probs").double()
    return ParityTokens(
        rollout=rollout,
        trainer=column("old_log_probs").double(),
        row=torch.arange(rows)[:, None].expand(rows, width)[mask],
        position=torch.arange(width)[None, :].expand(rows, width)[mask],
        token=column("responses") if "responses" in keys else torch.full(rollout.shape, UNKNOWN),
        is_current=column("on_policy_mask").bool()
        if "on_policy_mask" in keys
        else torch.ones(rollout.shape, dtype=torch.bool),
        version=_versions(batch, mask),
        entropy=moment("entropy"),
        sum_pi_squared=moment("sum_pi_squared"),
    )


def _versions(batch: DataProto, mask: Tensor) -> Tensor:
    """[N] int64: of each token where a schedule notes spans, else of each row."""
    versions = torch.full(mask.shape, UNKNOWN, dtype=torch.int64)
    spans = batch.non_tensor_batch.get(VERSIONS_KEY)
    if spans is not None:
        for row, parts in enumerate(spans):
            drawn = [version for version, count in parts for _ in range(count)]
            versions[row, : len(drawn)] = torch.tensor(drawn, dtype=torch.int64)
    elif "weight_version" in batch.batch.keys():  # noqa: SIM118 - a TensorDict
        versions[:] = batch.batch["weight_version"][:, None]
    return versions[mask]
