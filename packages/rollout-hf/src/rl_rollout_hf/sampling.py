"""From logits to tokens and their log-probs, for all rows of a batch at once.

What a token is drawn from, in this order: temperature, forbidden tokens, ``top_k``, ``top_p``; what is left is normalised.
Without filters that is the whole softmax at the request's temperature. Temperature 0 takes the most likely token, whose
log-prob under the one-point distribution it then comes from is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from rl_core.algorithms.precision import widen
from rl_core.contracts.rollout import SamplingParams
from torch import Tensor

_CHUNK_ELEMENTS = 1 << 25
"""Numbers of one table; about four of them exist at a time, one in float64."""


@dataclass(frozen=True, slots=True)
class RowSampling:
    """The sampling parameters of some rows of a batch, as tensors.

    Attributes:
        start: first of the rows in the batch.
        temperature: [R] float64; 1 for greedy rows.
        greedy: [R] bool, or None when no row is greedy.
        filtered: [F] int64, rows with ``top_k`` or ``top_p``, counted from ``start``.
        top_k: [F] int64; the vocabulary's size keeps all.
        top_p: [F] float64.
    """

    start: int
    temperature: Tensor
    greedy: Tensor | None
    filtered: Tensor
    top_k: Tensor
    top_p: Tensor

    @property
    def stop(self) -> int:
        """One more than the last of the rows."""
        return self.start + len(self.temperature)


BatchSampling = tuple[RowSampling, ...]
"""The rows of a batch in order, cut so that the tables of a part fit in memory."""


@dataclass(frozen=True, slots=True)
class Draws:
    """One token a row.

    Attributes:
        tokens: [B] int64.
        log_probs: [B] float32 or float64, under the distribution that the token was drawn from.
        is_sound: [B] bool; False where the logits held something that is not a number, so there is no distribution.
    """

    tokens: Tensor
    log_probs: Tensor
    is_sound: Tensor


def as_rows(params: Sequence[SamplingParams], vocab_size: int, device: torch.device) -> BatchSampling:
    """Put the parameters of a batch's rows on ``device``."""
    size = max(1, _CHUNK_ELEMENTS // vocab_size)
    return tuple(
        _as_part(params[start : start + size], start, vocab_size, device) for start in range(0, len(params), size)
    )


def _as_part(params: Sequence[SamplingParams], start: int, vocab_size: int, device: torch.device) -> RowSampling:
    greedy = [one.temperature == 0 for one in params]
    filtered = [
        row for row, one in enumerate(params) if not greedy[row] and (0 < one.top_k < vocab_size or one.top_p < 1)
    ]
    top_k = [params[row].top_k if params[row].top_k > 0 else vocab_size for row in filtered]
    return RowSampling(
        start=start,
        temperature=torch.tensor([one.temperature or 1.0 for one in params], dtype=torch.float64, device=device),
        greedy=torch.tensor(greedy, device=device) if any(greedy) else None,
        filtered=torch.tensor(filtered, dtype=torch.int64, device=device),
        top_k=torch.tensor(top_k, dtype=torch.int64, device=device),
        top_p=torch.tensor([params[row].top_p for row in filtered], dtype=torch.float64, device=device),
    )


def draw(
    logits: Tensor,
    rows: BatchSampling,
    uniforms: Tensor,
    forbidden: Sequence[tuple[int, Sequence[int]]] = (),
    *,
    raw_log_probs: bool = False,
) -> Draws:
    """Draw one token for each row, by the inverse of the cumulative distribution in order of ids.

    Args:
        logits: [B, V] float.
        rows: how to draw.
        uniforms: [B] float64 in [0, 1).
        forbidden: ``(row, ids)`` that may not be drawn now.
        raw_log_probs: return the log-probs of the unchanged logits instead.
    """
    parts = []
    for part in rows:
        start, stop = part.start, part.stop
        banned = [(row - start, ids) for row, ids in forbidden if start <= row < stop]
        parts.append(_draw(logits[start:stop], part, uniforms[start:stop], banned, raw_log_probs))
    if len(parts) == 1:
        return parts[0]
    return Draws(
        torch.cat([part.tokens for part in parts]),
        torch.cat([part.log_probs for part in parts]),
        torch.cat([part.is_sound for part in parts]),
    )


def _draw(
    logits: Tensor,
    rows: RowSampling,
    uniforms: Tensor,
    forbidden: Sequence[tuple[int, Sequence[int]]],
    raw_log_probs: bool,
) -> Draws:
    scaled = widen(logits)
    scaled = scaled / rows.temperature[:, None].to(scaled.dtype)
    for row, ids in forbidden:
        scaled[row, list(ids)] = -torch.inf
    if len(rows.filtered):
        scaled[rows.filtered] = _filter(scaled[rows.filtered], rows.top_k, rows.top_p)
    table = torch.log_softmax(scaled, dim=-1)
    tokens = _invert(table, uniforms)
    if rows.greedy is not None:
        tokens = torch.where(rows.greedy, scaled.argmax(dim=-1), tokens)
    log_probs = table.gather(1, tokens[:, None])[:, 0]
    is_sound = log_probs.isfinite()
    if raw_log_probs:
        log_probs = torch.log_softmax(widen(logits), dim=-1).gather(1, tokens[:, None])[:, 0]
    elif rows.greedy is not None:
        log_probs = log_probs.masked_fill(rows.greedy, 0.0)
    return Draws(tokens, log_probs, is_sound)


def _invert(table: Tensor, uniforms: Tensor) -> Tensor:
    """[B] ids: the first whose cumulative probability exceeds the row's share ``uniforms`` of the total."""
    cumulative = table.exp().cumsum(dim=-1, dtype=torch.float64)
    total = cumulative[:, -1]
    # Rounding must not let the target reach the total, where there is no token.
    target = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    places = torch.searchsorted(cumulative, target[:, None], right=True)[:, 0]
    return places.clamp_(max=table.shape[-1] - 1)  # of a row without numbers; it is not sound


def _filter(scaled: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """[F, V] ``scaled`` with ``-inf`` for what top-k, then top-p among the rest, leave out; equals rank by id."""
    values, order = scaled.sort(dim=-1, descending=True, stable=True)
    ranks = torch.arange(values.shape[-1], device=values.device)
    values = values.masked_fill(ranks >= top_k[:, None], -torch.inf)
    cumulative = torch.softmax(values, dim=-1).cumsum(dim=-1, dtype=torch.float64)
    before = torch.cat([torch.zeros_like(cumulative[:, :1]), cumulative[:, :-1]], dim=-1)
    left_out = (before >= top_p[:, None]) & (top_p < 1)[:, None]
    values = values.masked_fill(left_out, -torch.inf)
    return torch.full_like(scaled, -torch.inf).scatter_(1, order, values)
