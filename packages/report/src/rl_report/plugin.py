"""Registration of the subcommand; nothing is imported that it needs."""

from __future__ import annotations

from collections.abc import Iterable

from rl_core import hookimpl
from rl_core.plugins.records import CommandRecord, Record


@hookimpl
def rl_plugins() -> Iterable[Record]:
    """The one record of this package."""
    return (
        CommandRecord(
            name="report",
            target="rl_report.command:main",
            summary="Report of a run folder: in the terminal, and as one HTML page.",
        ),
    )
