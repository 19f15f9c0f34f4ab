"""What this package registers; nothing is imported that a part needs."""

from __future__ import annotations

from collections.abc import Iterable

from rl_core import hookimpl
from rl_core.plugins.records import CommandRecord, Record, RewardRecord, TrackerRecord


@hookimpl
def rl_plugins() -> Iterable[Record]:
    """The command, the reward of its rows, and the quiet console that it trains under."""
    return (
        CommandRecord(
            name="demo",
            target="rl_demo.command:main",
            summary="A tiny model learns to add: SFT, then GRPO, in minutes on a CPU.",
        ),
        RewardRecord(
            name="demo/sums",
            target="rl_demo.reward:compute_score",
            summary="Is the number at the end of the answer the sum?",
        ),
        TrackerRecord(
            name="demo",
            target="rl_demo.progress:DemoTracker",
            summary="A progress bar with the reward or the loss; ten lines where there is no terminal.",
        ),
    )
