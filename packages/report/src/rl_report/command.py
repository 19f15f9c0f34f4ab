"""``rl report RUN``: the report of a run folder, in the terminal and as a page."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rl_report.html import write_html
from rl_report.run import load_run
from rl_report.terminal import terminal_report


def main(argv: Sequence[str]) -> int:
    """Run ``rl report``; returns the exit status.

    Raises:
        DataError: there is nothing to report, or the page cannot be written.
    """
    parser = argparse.ArgumentParser(
        prog="rl report", description="Report a run: in the terminal, and as one HTML page that needs nothing else."
    )
    parser.add_argument(
        "run", metavar="RUN", help="run folder of rl train, rl sft or rl rm (trainer.default_local_dir)"
    )
    page = parser.add_mutually_exclusive_group()
    page.add_argument("--html", type=Path, metavar="PATH", help="write the page here; default: RUN/report.html")
    page.add_argument("--no-html", action="store_true", help="print only")
    options = parser.parse_args(list(argv))
    run = load_run(options.run)
    terminal_report(run)
    if not options.no_html:
        print(f"\nreport: {write_html(run, options.html)}")  # noqa: T201 - what was asked for
    return 0
