"""What this package provides, as records; imports nothing heavy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_core import hookimpl
from rl_core.plugins import AdvantageRecord, PolicyLossRecord, RewardRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rl_core.plugins import Record


@hookimpl
def rl_plugins() -> Iterable[Record]:
    """Return one record for each part."""
    return [
        RewardRecord(
            name="{{cookiecutter.name}}/overlap",
            target="rl_{{cookiecutter.name}}.reward:compute_score",
            summary="Share of the response's characters that occur in the ground truth.",
        ),
        PolicyLossRecord(
            name="{{cookiecutter.name}}-unclipped",
            target="rl_{{cookiecutter.name}}.policy_loss:unclipped",
            summary="The surrogate of conservative policy iteration: ratio times advantage, not clipped.",
        ),
        AdvantageRecord(
            name="{{cookiecutter.name}}-leave-one-out",
            target="rl_{{cookiecutter.name}}.advantage:leave_one_out",
            summary="Reward minus the mean reward of the other responses to the same prompt.",
            needs=frozenset({"group"}),
        ),
    ]
