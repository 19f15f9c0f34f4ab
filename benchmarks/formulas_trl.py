"""The numbers of our formulas beside those of TRL's own code, on the same random tensors.

Only methods that both have. TRL runs in an environment of its own (`peers/formulas_trl.py`): its trainers are called, nothing
of them is written again. Losses are compared with their gradients by the log-probs, over whole mini-batches, in float64 and
float32; advantages in float32, in which TRL keeps rewards. Prints a table and writes benchmarks/results/formulas_trl.md.

    python benchmarks/formulas_trl.py --peer-python PEER/bin/python

PEER is an environment made by `pip install -c constraints/cpu.txt torch==2.13.0 trl`; without it there is nothing to compare.
Ends with 1 if a difference is larger than its limit.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from unittest import mock

import numpy as np
import torch
from rl_core.algorithms import groups
from rl_core.algorithms.inputs import AdvantageInputs, LossTotals, PolicyLossInputs
from rl_core.algorithms.kl import k3
from rl_core.algorithms.logprobs import token_entropy, token_log_probs
from rl_core.config.actor import ActorConfig
from rl_core.config.algorithm import AlgorithmConfig
from rl_core.plugins import get_registry
from torch import Tensor

RESULT = Path(__file__).parent / "results" / "formulas_trl.md"
PEER = Path(__file__).parent / "peers" / "formulas_trl.py"
ROWS, WIDTH = 8, 12
LIMITS = {"float64": 1e-12, "float32": 2e-6}
"""Largest absolute difference that passes for rounding; all numbers here are of the order of 1."""


@dataclass(frozen=True)
class Loss:
    """A policy loss on both sides.

    Attributes:
        name: as the table says it.
        ours: ``loss_mode``, ``loss_agg_mode`` and keys of ``actor``.
        theirs: attributes of their trainer.
        trainer: which of theirs.
        kl: weight of a k3 term in the loss.
        is_weighted: with importance weights against the generator.
        note: what must be set for the two to be the same.
    """

    name: str
    ours: tuple[str, str, dict[str, Any]]
    theirs: dict[str, Any]
    trainer: str = "grpo"
    kl: float = 0.0
    is_weighted: bool = False
    note: str = ""


CLIP = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28}
BOUNDS = {"epsilon_low": 0.2, "epsilon_high": 0.28}
NO_DUAL = CLIP | {"clip_ratio_c": 1e9}
LOSSES = (
    Loss("`vanilla`, `seq-mean-token-mean`", ("vanilla", "seq-mean-token-mean", NO_DUAL), BOUNDS,
         note="`loss_type=grpo`; TRL has no dual clip unless `delta` is set"),
    Loss("... with dual clip", ("vanilla", "seq-mean-token-mean", CLIP | {"clip_ratio_c": 1.5}), BOUNDS | {"delta": 1.5},
         note="`delta` = `clip_ratio_c`"),
    Loss("... with k3 in the loss", ("vanilla", "seq-mean-token-mean", NO_DUAL), BOUNDS | {"beta": 0.05}, kl=0.05,
         note="`beta` = `kl_loss_coef`, `use_bias_correction_kl=False` (TRL's default multiplies the KL by the ratio); "
              "ours caps k3 at 10"),
    Loss("... with weights against the generator", ("vanilla", "seq-mean-token-mean", NO_DUAL), BOUNDS, is_weighted=True,
         note="`vllm_importance_sampling_correction`"),
    Loss("`vanilla`, `token-mean`", ("vanilla", "token-mean", NO_DUAL), BOUNDS | {"loss_type": "dapo"},
         note="`loss_type=dapo`: tokens of the whole batch"),
    Loss("... of one micro-batch", ("vanilla", "token-mean", NO_DUAL), BOUNDS | {"loss_type": "bnpo"},
         note="`loss_type=bnpo` counts the tokens of a micro-batch, ours never: equal where there is one"),
    Loss("`vanilla`, `seq-mean-token-sum-norm`", ("vanilla", "seq-mean-token-sum-norm", NO_DUAL),
         BOUNDS | {"loss_type": "dr_grpo", "max_completion_length": 20}, note="`loss_type=dr_grpo`"),
    Loss("`gspo`, `seq-mean-token-mean`", ("gspo", "seq-mean-token-mean", CLIP),
         BOUNDS | {"importance_sampling_level": "sequence"}, note="`importance_sampling_level=sequence`"),
    Loss("`gspo`, `seq-mean-token-sum`", ("gspo", "seq-mean-token-sum", CLIP),
         BOUNDS | {"importance_sampling_level": "sequence", "loss_type": "luspo"}, note="`loss_type=luspo`"),
    Loss("`cispo`, `token-mean`", ("cispo", "token-mean", {"clip_ratio_low": 1.0, "clip_ratio_high": 0.28}),
         {"epsilon_low": 0.2, "epsilon_high": 1.28, "loss_type": "cispo"},
         note="`epsilon_high` is the cap itself, ours the distance from 1; `clip_ratio_low=1` leaves the lower side open"),
    Loss("`sapo`, `seq-mean-token-mean`", ("sapo", "seq-mean-token-mean", {"tau_pos": 1.0, "tau_neg": 1.125}),
         BOUNDS | {"loss_type": "sapo", "tau": (1.0, 1.125)},
         note="`loss_type=sapo`; TRL holds its temperatures in float32, so these are numbers that float32 has"),
    Loss("`geo_mean`, `seq-mean-token-mean`",
         ("geo_mean", "seq-mean-token-mean", {"clip_ratio_low": 0.4, "clip_ratio_high": 0.4}),
         {"epsilon_low": 0.4, "epsilon_high": 0.4}, trainer="gmpo", note="GMPO, of `trl.experimental`"),
)  # fmt: skip


@dataclass(frozen=True)
class Advantage:
    """An estimator on both sides.

    Attributes:
        name: as the table says it.
        estimator: ours.
        trainer: theirs.
        theirs: keys of their configuration.
        ours: keys of ``algorithm``.
        eps: theirs, put in the place of ours for the second number.
        num_rewards: reward functions.
        is_near: no limit holds: the methods differ in what the note says.
        note: what must be set, and what differs.
    """

    name: str
    estimator: str
    trainer: str
    theirs: dict[str, Any]
    ours: dict[str, Any] = field(default_factory=dict)
    eps: float | None = None
    num_rewards: int = 1
    is_near: bool = False
    note: str = ""


ADVANTAGES = (
    Advantage("`grpo`", "grpo", "grpo", {"scale_rewards": "group"}, eps=1e-4, note="eps 1e-6, TRL's 1e-4; both n - 1"),
    Advantage("`grpo`, `norm_adv_by_std_in_grpo=False`", "grpo", "grpo", {"scale_rewards": "none"},
              {"norm_adv_by_std_in_grpo": False}, note="`scale_rewards=none`"),
    Advantage("`rloo`", "rloo", "rloo", {"beta": 0.0}, note="`beta=0`; KL in the reward is a line of its own here"),
    Advantage("`gdpo`", "gdpo", "grpo", {"multi_objective_aggregation": "normalize_then_sum"},
              {"gdpo_reward_keys": ["0", "1"]}, num_rewards=2, is_near=True,
              note="`multi_objective_aggregation=normalize_then_sum`; theirs divides by std + 1e-4 twice, ours by std + 1e-6 "
                   "and then by sqrt(var + 1e-8)"),
)  # fmt: skip


def rewards(count: int) -> Tensor:
    """[B, count] two groups of four; the first has an answer without any reward."""
    values = torch.rand(ROWS, count, generator=torch.Generator().manual_seed(7))
    values[2] = float("nan")
    return values


def tensors(dtype: torch.dtype) -> dict[str, Tensor]:
    """A mini-batch in which every branch of the losses is met."""
    generator = torch.Generator().manual_seed(3)

    def draw(scale: float, shift: float = 0.0) -> Tensor:
        return (torch.randn(ROWS, WIDTH, generator=generator, dtype=torch.float64) * scale + shift).to(dtype)

    lengths = torch.tensor([12, 5, 1, 9, 12, 3, 7, 10])
    old = draw(0.8, -2.0).clamp(max=-0.05)
    return {
        "log_prob": (old + draw(0.4)).clamp(max=-0.01),
        "old_log_prob": old,
        "ref_log_prob": (old + draw(0.5)).clamp(max=-0.01),
        "advantages": torch.randn(ROWS, generator=generator, dtype=torch.float64).to(dtype),
        "mask": torch.arange(WIDTH) < lengths[:, None],
        "weights": draw(0.3).exp(),
    }


def ours(loss: Loss, data: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Our loss and its gradient by the log-probs."""
    mode, aggregation, keys = loss.ours
    registry = get_registry()
    function = cast("Callable[..., Any]", registry.load("policy_loss", mode))
    aggregate = cast("Callable[..., Tensor]", registry.load("loss_aggregation", aggregation))
    log_prob = data["log_prob"].clone().requires_grad_()
    mask = data["mask"]
    totals = LossTotals.of(mask, 20)
    inputs = PolicyLossInputs(
        log_prob=log_prob,
        old_log_prob=data["old_log_prob"],
        advantages=data["advantages"][:, None].expand(mask.shape),
        response_mask=mask,
        totals=totals,
        rollout_is_weights=data["weights"] if loss.is_weighted else None,
    )
    value = aggregate(function(inputs, ActorConfig(**keys)).token_loss, mask, totals)
    if loss.kl:
        value = value + loss.kl * aggregate(k3(log_prob, data["ref_log_prob"]), mask, totals)
    (gradient,) = torch.autograd.grad(value, log_prob)
    return value.detach(), gradient


def our_advantages(case: Advantage, *, eps: float | None) -> Tensor:
    """[B] our advantages of the rewards, in float32."""
    estimate = cast("Callable[..., Any]", get_registry().load("advantage", case.estimator))
    values = rewards(case.num_rewards)
    inputs = AdvantageInputs(
        token_level_rewards=values.sum(dim=1, keepdim=True),
        response_mask=torch.ones(ROWS, 1, dtype=torch.bool),
        uid=np.repeat(["a", "b"], ROWS // 2),
        extras={f"reward_extra/{number}": column.numpy().astype(object) for number, column in enumerate(values.T)},
    )
    with mock.patch.object(groups, "STD_EPS", groups.STD_EPS if eps is None else eps):
        found: Tensor = estimate(inputs, AlgorithmConfig(**case.ours))[0][:, 0]
    return found


def peer_answers(python: str) -> dict[str, Any]:
    """What TRL says to every case."""
    logits = torch.randn(6, 40, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 3
    cases: dict[str, Any] = {"scores": {"kind": "scores", "logits": logits, "tokens": torch.arange(6)}}
    for case in ADVANTAGES:
        cases[case.name] = {
            "kind": "advantage",
            "trainer": case.trainer,
            "rewards": rewards(case.num_rewards),
            "keys": case.theirs,
        }
    for dtype in LIMITS:
        for loss in LOSSES:
            data: dict[str, Any] = tensors(getattr(torch, dtype))
            if not loss.is_weighted:
                data.pop("weights")
            cases[f"{loss.name} {dtype}"] = {"kind": "loss", "trainer": loss.trainer, "keys": loss.theirs, **data}
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder, "cases.pt"), Path(folder, "answers.pt")
        torch.save(cases, asked)
        subprocess.run([python, str(PEER), str(asked), str(answered)], check=True, stdout=subprocess.DEVNULL)
        answers: dict[str, Any] = torch.load(answered)
    return answers | {"logits": logits}


def difference(found: Tensor, expected: Tensor) -> float:
    """Largest absolute difference."""
    return float((found.double() - expected.double()).abs().max())


def compare(answers: dict[str, Any]) -> tuple[list[str], bool]:
    """Lines of the report, and whether every difference is rounding."""
    lines, is_fine = [], True

    def shown(value: float, limit: float) -> str:
        nonlocal is_fine
        is_fine &= value <= limit
        return f"{value:.1e}" if value <= limit else f"**{value:.1e}**"

    lines += ["| loss | float64: loss, gradient | float32: loss, gradient | keys |", "|---|---|---|---|"]
    for loss in LOSSES:
        cells = []
        for dtype, limit in LIMITS.items():
            pairs = zip(ours(loss, tensors(getattr(torch, dtype))), answers[f"{loss.name} {dtype}"], strict=True)
            cells.append(", ".join(shown(difference(mine, theirs), limit) for mine, theirs in pairs))
        lines.append(f"| {loss.name} | {cells[0]} | {cells[1]} | {loss.note} |")
    lines += ["", "| advantage | as they are | with TRL's eps | keys |", "|---|---|---|---|"]
    for case in ADVANTAGES:
        plain = difference(our_advantages(case, eps=None), answers[case.name])
        same = difference(our_advantages(case, eps=case.eps), answers[case.name])
        first = f"{plain:.1e}" if case.eps or case.is_near else shown(plain, LIMITS["float32"])
        second = shown(same, LIMITS["float32"]) if case.eps else ""
        lines.append(f"| {case.name} | {first} | {second} | {case.note} |")
    log_probs, entropy = answers["scores"]
    mine = token_log_probs(answers["logits"], torch.arange(6)), token_entropy(answers["logits"])
    lines += ["", "| of a logit table, float64 | difference |", "|---|---|"]
    for name, found, theirs in (("log-probs", mine[0], log_probs), ("entropy", mine[1], entropy)):
        lines.append(f"| {name} | {shown(difference(found, theirs), LIMITS['float64'])} |")
    return lines, is_fine


def main() -> None:
    """Compare, print, write down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer-python", help="interpreter of an environment with TRL")
    peer = parser.parse_args().peer_python
    if peer is None:
        print("nothing to compare with: give --peer-python, an interpreter of an environment with TRL")
        return
    answers = peer_answers(peer)
    lines, is_fine = compare(answers)
    versions = f"rl-core {importlib.metadata.version('rl-core')}, TRL {answers['version']}, torch {torch.__version__}"
    head = [
        "# Our formulas and TRL's",
        "",
        f"`benchmarks/formulas_trl.py --peer-python PEER`: largest absolute differences. {versions}.",
        "",
        f"Losses: {ROWS} responses of 1 to {WIDTH} tokens, ratios on both sides of every bound, both signs of the "
        "advantage, and the gradient by every log-prob. Advantages: two groups of four, one reward missing, float32 on "
        "both sides.",
        "",
    ]
    text = "\n".join([*head, *lines]) + "\n"
    print(text)
    RESULT.write_text(text, encoding="utf-8")
    sys.exit(not is_fine)


if __name__ == "__main__":
    main()
