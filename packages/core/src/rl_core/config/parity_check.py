"""What makes the comparison of generator and trainer inexact although their weights are the same: said before a run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rl_core.config.compose import Config
    from rl_core.config.rollout import RolloutConfig

_ROLLOUT = "actor_rollout_ref.rollout"


def parity_findings(config: Config) -> Iterator[tuple[Literal["error", "warning"], str]]:
    """Warnings about sampling keys under which the log-prob gap is not 0, and limits that nothing can be held to."""
    rollout, limits = config.tree.actor_rollout_ref.rollout, config.tree.trainer.parity
    if rollout.top_p < 1 or rollout.top_k > 0:
        yield "warning", _filtered(rollout, limits.first_sync_tolerance)
    if rollout.logprobs_mode.startswith("raw") and rollout.temperature != 1:
        yield (
            "warning",
            f"{_ROLLOUT}.logprobs_mode is {rollout.logprobs_mode} and {_ROLLOUT}.temperature is {rollout.temperature:g}: the "
            "generator reports log-probs of the distribution at temperature 1, the trainer those of the one that was drawn "
            "from, so the parity metrics differ with equal weights. Take processed_logprobs.",
        )
    if rollout.min_tokens > 0 and not rollout.ignore_eos:
        yield (
            "warning",
            f"{_ROLLOUT}.min_tokens is {rollout.min_tokens}: where the end of the sequence is forbidden, the generator's "
            f"log-probs are those of what is left, so the parity metrics of the first {rollout.min_tokens} tokens of a "
            "response are inexact by what the policy gives to the end.",
        )
    if not rollout.calculate_log_probs and limits.max_logprob_gap is not None:
        yield (
            "warning",
            f"trainer.parity.max_logprob_gap is {limits.max_logprob_gap:g}, but {_ROLLOUT}.calculate_log_probs is false: there "
            "is no gap to hold to it. Turn it on.",
        )


def _filtered(rollout: RolloutConfig, tolerance: float) -> str:
    text = (
        f"rollout.top_p is {rollout.top_p:g} and rollout.top_k is {rollout.top_k}: responses are not drawn from "
        "the policy itself, and the parity metrics are inexact: with equal weights the generator's log-prob of a token lies "
    )
    if rollout.top_k > 0:
        return f"{text}above the policy's by minus the log of the probability that is kept."
    most = -math.log(rollout.top_p)
    text += f"above the policy's by up to -log(top_p) = {most:.2g} nats."
    if most > tolerance:
        text += (
            f" trainer.parity.first_sync_tolerance ({tolerance:g}) can stop the run at its first step for that; raise it above "
            f"{most:.2g} if the filter is meant."
        )
    return text
