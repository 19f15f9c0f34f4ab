"""Reports of training runs: one self-contained HTML page, and the same story in a terminal.

::

    run = load_run("checkpoints/project/experiment")  # reads the run folder; DataError where it cannot
    terminal_report(run)  # to standard output, or to a rich Console
    write_html(run)  # <run folder>/report.html; html_report(run) is its text

Names are resolved on first use: discovery imports this package in every process.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

from rl_report._version import __version__

if TYPE_CHECKING:
    from rl_report.html import html_report, write_html
    from rl_report.run import Run, Sample, load_run
    from rl_report.terminal import terminal_report

__all__ = [
    "Run",
    "Sample",
    "__version__",
    "html_report",
    "load_run",
    "terminal_report",
    "write_html",
]

_HOMES: Final = {
    "Run": "rl_report.run",
    "Sample": "rl_report.run",
    "html_report": "rl_report.html",
    "load_run": "rl_report.run",
    "terminal_report": "rl_report.terminal",
    "write_html": "rl_report.html",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
