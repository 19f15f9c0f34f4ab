"""pytest plugin of `ci/test.py`: one JSON line per finished test, whatever the number of xdist workers.

Each line: `test` (node id), `outcome` (passed, failed, skipped), `seconds` (set-up, call and tear-down),
`reason` (why it was skipped). A module that cannot be collected is a failed test named by its path.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the lines go."""
    parser.addoption("--report-lines", type=Path, default=None, help="append one JSON line per test to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Record in the process that prints, never in an xdist worker."""
    path = config.getoption("--report-lines")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(path), "rl-report-lines")


class Recorder:
    """Adds the phases of each test up and writes its line after tear-down."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.open: dict[str, dict[str, object]] = {}

    def write(self, line: dict[str, object]) -> None:
        """Append at once, so that a run that is killed leaves what it had."""
        with self.path.open("a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One of set-up, call, tear-down came in."""
        line = self.open.setdefault(
            report.nodeid, {"test": report.nodeid, "outcome": "passed", "seconds": 0.0, "reason": ""}
        )
        line["seconds"] = float(str(line["seconds"])) + report.duration
        if report.outcome == "failed" or (report.outcome == "skipped" and line["outcome"] == "passed"):
            line["outcome"] = report.outcome
            line["reason"] = skip_reason(report) if report.outcome == "skipped" else ""
        if report.when == "teardown":
            self.write(self.open.pop(report.nodeid))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A module that fails or skips as a whole never reaches its tests."""
        if report.outcome != "passed":
            reason = skip_reason(report) if report.outcome == "skipped" else ""
            self.write({"test": report.nodeid, "outcome": report.outcome, "seconds": 0.0, "reason": reason})

    def pytest_sessionfinish(self) -> None:
        """Whatever began and never ended (a worker died, a time limit struck) has failed."""
        for line in self.open.values():
            self.write(line | {"outcome": "failed"})
        self.open.clear()


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The text of a skip, or of an expected failure."""
    expected = getattr(report, "wasxfail", None)
    if expected is not None:
        return f"xfail: {expected}"
    return str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
