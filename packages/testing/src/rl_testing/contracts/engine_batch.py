"""The batch of the engine suite, and what a slow, obvious implementation makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from rl_dataproto import DataProto, jagged_from_rows
from torch import Tensor

from rl_testing.contracts.engine_losses import ENTROPY_WEIGHT

Scores = Callable[[Mapping[str, Tensor], Tensor], Tensor]
"""Weights and token ids [L] -> logits [L, V] or values [L]; differentiable in the weights."""


@dataclass(frozen=True, eq=False)
class Row:
    """One sequence, as plain tensors.

    Attributes:
        prompt: [P] int64, P >= 1.
        response: [R] int64, R may be 0.
        mask: [R] bool.
        advantages: [R] float64.
    """

    prompt: Tensor
    response: Tensor
    mask: Tensor
    advantages: Tensor

    @property
    def ids(self) -> Tensor:
        """[P + R] int64."""
        return torch.cat([self.prompt, self.response])


def make_rows(vocab_size: int, *, seed: int = 0) -> list[Row]:
    """Seven rows: lengths all different, one without a response, one fully masked, holes in the masks of others."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for number, (prompt, response) in enumerate([(2, 3), (1, 6), (4, 1), (3, 4), (2, 0), (5, 2), (1, 5)]):
        ids = torch.randint(vocab_size, (prompt + response,), generator=generator)
        mask = torch.rand(response, generator=generator) < 0.7
        mask[-1:] = True
        rows.append(
            Row(
                prompt=ids[:prompt],
                response=ids[prompt:],
                mask=mask & (number != 3),
                advantages=torch.randn(response, generator=generator, dtype=torch.float64),
            )
        )
    return rows


def as_batch(rows: Sequence[Row], *, marked: Sequence[int] = ()) -> DataProto:
    """``rows`` as the controller sends them; ``marked`` rows carry True in a column of that name."""
    return DataProto.from_dict(
        tensors={
            "input_ids": jagged_from_rows([row.ids for row in rows]),
            "responses": jagged_from_rows([row.response for row in rows]),
            "response_mask": jagged_from_rows([row.mask for row in rows]),
            "advantages": jagged_from_rows([row.advantages for row in rows]),
            "row_id": torch.arange(len(rows)),
            "marked": torch.tensor([number in marked for number in range(len(rows))]),
        },
        meta_info={"step": 3},
    )


def num_tokens(rows: Sequence[Row]) -> int:
    """Masked-in tokens of all rows: the normaliser of the whole mini-batch."""
    return sum(int(row.mask.sum()) for row in rows)


def slow_log_probs(
    logits: Scores, weights: Mapping[str, Tensor], row: Row, temperature: float
) -> tuple[Tensor, Tensor]:
    """Log-prob and entropy of each response token, [R] each: logits row t says what follows token t."""
    table = torch.log_softmax(logits(weights, row.ids) / temperature, dim=-1)
    first = len(row.prompt)
    log_probs = [table[first + place - 1, token] for place, token in enumerate(row.response.tolist())]
    entropies = [
        -(table[first + place - 1].exp() * table[first + place - 1]).sum() for place in range(len(row.response))
    ]
    empty = table.new_empty(0)
    return torch.stack(log_probs) if log_probs else empty, torch.stack(entropies) if entropies else empty


def slow_squares(logits: Scores, weights: Mapping[str, Tensor], row: Row, temperature: float) -> Tensor:
    """Sum of squared probabilities of the distribution that each response token was drawn from, [R]."""
    probs = torch.softmax(logits(weights, row.ids) / temperature, dim=-1)
    first = len(row.prompt)
    sums = [sum(p * p for p in probs[first + place - 1].tolist()) for place in range(len(row.response))]
    return torch.tensor(sums, dtype=probs.dtype)


def slow_values(values: Scores, weights: Mapping[str, Tensor], row: Row) -> Tensor:
    """Value before each response token, [R]."""
    return values(weights, row.ids)[len(row.prompt) - 1 : len(row.prompt) + len(row.response) - 1]


def slow_policy_loss(logits: Scores, weights: Mapping[str, Tensor], rows: Sequence[Row], temperature: float) -> Tensor:
    """``engine_losses.PolicyLoss`` of all rows at once, one row after the other."""
    total = torch.zeros((), dtype=torch.float64)
    for row in rows:
        log_probs, entropy = slow_log_probs(logits, weights, row, temperature)
        gain = row.advantages.to(log_probs.dtype) * log_probs + ENTROPY_WEIGHT * entropy
        total = total - gain[row.mask].sum()
    return total / num_tokens(rows)


def slow_value_loss(values: Scores, weights: Mapping[str, Tensor], rows: Sequence[Row]) -> Tensor:
    """``engine_losses.ValueLoss`` of all rows at once."""
    total = torch.zeros((), dtype=torch.float64)
    for row in rows:
        error = slow_values(values, weights, row) - row.advantages
        total = total + error.square()[row.mask].sum()
    return total / num_tokens(rows)


@dataclass(frozen=True, eq=False)
class SlowStep:
    """One SGD step of the slow implementation: loss, norm of the gradient, weights after it."""

    loss: float
    grad_norm: float
    weights: dict[str, Tensor]


def slow_sgd(
    loss: Callable[[Mapping[str, Tensor]], Tensor], weights: Mapping[str, Tensor], *, lr: float, steps: int
) -> list[SlowStep]:
    """Plain gradient descent on the whole batch."""
    done = []
    current = {name: tensor.clone() for name, tensor in weights.items()}
    for _ in range(steps):
        leaves = {name: tensor.clone().requires_grad_() for name, tensor in current.items()}
        value = loss(leaves)
        found = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
        gradients = {
            name: torch.zeros_like(leaf) if gradient is None else gradient
            for (name, leaf), gradient in zip(leaves.items(), found, strict=True)
        }
        norm = torch.stack([gradient.square().sum() for gradient in gradients.values()]).sum().sqrt()
        current = {name: tensor - lr * gradients[name] for name, tensor in current.items()}
        done.append(SlowStep(float(value.detach()), float(norm), current))
    return done
