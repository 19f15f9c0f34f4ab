"""Runs a contract suite from inside a test: how suites are proved by planted faults.

::

    failures = run_contract(RewardContract, {"compute_score": never_finite}, select={"test_scores_are_finite"})
    assert [failure.test for failure in failures] == ["test_scores_are_finite"]

The suite runs in a pytest session of its own within this process, so fixtures, parametrisation and marks work as they
do for an implementer. The session loads no conftest and no configuration of the surrounding project.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

_SUITE = "TestContract"

_running: dict[str, type] = {}
"""Class of each session that is going on, where the session's one module finds it."""

_ARGUMENTS = (
    "--import-mode=importlib",
    "--tb=short",
    "--capture=no",
    "-p", "no:cacheprovider",
    "-p", "no:xdist",
    # Both would touch process-wide hooks of the session around this one.
    "-p", "no:faulthandler",
    "-p", "no:threadexception",
    # Collects garbage of the whole process at the end of each session, which takes longer than a suite's test.
    "-p", "no:unraisableexception",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Failure:
    """One test of a contract that did not pass.

    Attributes:
        test: name of the test, with its parameters in brackets, if any.
        message: short traceback.
    """

    test: str
    message: str


@dataclass(frozen=True, slots=True)
class ContractRun:
    """What happened to every test of a contract, in the order in which they ran."""

    passed: tuple[str, ...]
    skipped: tuple[str, ...]
    failures: tuple[Failure, ...]


class _Recorder:
    """The session's plugin: keeps outcomes, and leaves out tests that were not asked for."""

    def __init__(self, select: Collection[str] | None) -> None:
        self.select = select
        self.passed: list[str] = []
        self.skipped: list[str] = []
        self.failures: list[Failure] = []
        self.broken: list[str] = []

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if self.select is None:
            return
        dropped = [item for item in items if item.name.split("[")[0] not in self.select]
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in dropped]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.broken.append(report.longreprtext)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.rpartition("::")[2]
        if report.failed:
            self.failures.append(Failure(test=name, message=report.longreprtext))
        elif report.skipped:
            self.skipped.append(name)
        elif report.when == "call":
            self.passed.append(name)


def run_contract_tests(
    contract: type,
    overrides: Mapping[str, Any] | None = None,
    *,
    select: Collection[str] | None = None,
    stop_at_first: bool = False,
) -> ContractRun:
    """Run the tests of ``contract``, with what an implementer would override.

    Args:
        contract: a contract class, or a subclass of one.
        overrides: attributes of a fresh subclass: properties, methods, fixtures (``pytest.fixture`` functions).
        select: names of the only tests to run, without parameters; None runs all.
        stop_at_first: end at the first failure.

    Raises:
        RuntimeError: the class could not be collected, or no test ran; a run that proves nothing is no success.
    """
    suite = type(_SUITE, (contract,), {"__module__": __name__, **(overrides or {})})
    key = f"test_contract_{uuid.uuid4().hex}"
    recorder = _Recorder(select)
    stop = ("-x",) if stop_at_first else ()
    _running[key] = suite
    printed = io.StringIO()
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.dict(os.environ),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            os.environ.pop("PYTEST_ADDOPTS", None)
            module = Path(folder, f"{key}.py")
            module.write_text(f"from {__name__} import _running\n\n{_SUITE} = _running[{key!r}]\n", encoding="utf-8")
            ini = Path(folder, "pytest.ini")
            ini.write_text("[pytest]\n", encoding="utf-8")
            pytest.main([*_ARGUMENTS, *stop, "-c", str(ini), str(module)], plugins=[recorder])
    finally:
        del _running[key]
        sys.modules.pop(key, None)
    if recorder.broken or not (recorder.passed or recorder.failures):
        found = "\n".join(recorder.broken) or printed.getvalue()
        msg = (
            f"asked for the tests of {contract.__name__} (select={select}), but none ran; pytest said:\n{found}\n"
            "Check the names in select and the overrides."
        )
        raise RuntimeError(msg)
    return ContractRun(tuple(recorder.passed), tuple(recorder.skipped), tuple(recorder.failures))


def run_contract(
    contract: type,
    overrides: Mapping[str, Any] | None = None,
    *,
    select: Collection[str] | None = None,
    stop_at_first: bool = False,
) -> list[Failure]:
    """The failures of ``run_contract_tests`` with the same arguments; empty when the implementation keeps its word."""
    return list(run_contract_tests(contract, overrides, select=select, stop_at_first=stop_at_first).failures)
