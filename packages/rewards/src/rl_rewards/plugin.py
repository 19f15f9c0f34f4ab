"""What this package registers."""

from __future__ import annotations

from collections.abc import Iterable

from rl_core import hookimpl
from rl_core.plugins.records import Record, RewardRecord


@hookimpl
def rl_plugins() -> Iterable[Record]:
    """One record for each data source that can be scored."""
    return [
        RewardRecord(
            name="openai/gsm8k",
            aliases=("gsm8k",),
            target="rl_rewards.gsm8k:compute_score",
            summary="Number after the last ####, compared by value.",
        )
    ]
