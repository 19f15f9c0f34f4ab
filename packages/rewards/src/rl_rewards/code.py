"""Programming problems: the last code block of a response, run against the row's test cases in the sandbox."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rl_rewards.code_tests import TOLERANCE, Problem, parse_problem
from rl_rewards.fenced import last_block
from rl_rewards.sandbox import Limits, Sandbox, open_sandbox
from rl_rewards.sandbox.service import SandboxService


def compute_score(
    *,
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    sandbox_fusion: Mapping[str, Any] | None = None,
    continuous: bool = False,
    tolerance: float = TOLERANCE,
    test_timeout_s: float = 10.0,
    deadline_s: float = 60.0,
) -> dict[str, Any]:
    """Run the code of a response against the test cases.

    Args:
        data_source: not used.
        solution_str: the response.
        ground_truth: test cases; see ``rl_rewards.code_tests``.
        extra_info: not used.
        sandbox_fusion: the section ``reward_model.sandbox_fusion`` of the configuration.
        continuous: score the share of tests that passed; else 1.0 if all did, and the first that fails is the last that runs.
        tolerance: for decimal fractions in outputs.
        test_timeout_s: for one test.
        deadline_s: for all of them together; a test that is not reached has failed.

    Returns:
        ``score``, ``tests_passed``, ``tests_total`` and ``tests``: for each that ran ``passed``, ``wrong`` or the status of
        the sandbox (``error``, ``timeout``, ``memory``, ``output_limit``, ``killed``).

    Raises:
        ValueError: the test cases cannot be read.
        SandboxError: code could not be run; nothing is known about the response.
    """
    problem = parse_problem(ground_truth)
    total = len(problem.cases)
    code = last_block(solution_str)
    tests: list[str] = []
    if code is not None:
        with _sandbox(problem.program(code), dict(sandbox_fusion or {}), test_timeout_s) as box:
            tests = _run_tests(box, problem, tolerance, deadline_s, stop_early=not continuous)
    passed = tests.count("passed")
    score = passed / total if continuous else float(passed == total)
    return {"score": score, "tests_passed": passed, "tests_total": total, "tests": tests or ["no code"]}


def _sandbox(program: str, settings: dict[str, Any], wall_s: float) -> Sandbox | SandboxService:
    limits = Limits(wall_s=wall_s, cpu_s=wall_s, memory_mb=settings.get("memory_limit_mb", 1024))
    if url := settings.get("url"):
        return SandboxService(url=url, code=program, limits=limits, max_concurrent=settings.get("max_concurrent", 64))
    return open_sandbox(program, limits=limits, allow_weaker=settings.get("allow_weaker", False))


def _run_tests(
    box: Sandbox | SandboxService, problem: Problem, tolerance: float, deadline_s: float, *, stop_early: bool
) -> list[str]:
    end = time.monotonic() + deadline_s
    tests: list[str] = []
    for case in problem.cases:
        left_s = end - time.monotonic()
        if left_s <= 0:
            tests.append("timeout")
            break
        result = box.run(case.stdin, wall_s=left_s)
        outcome: str = result.status if result.status != "ok" else "wrong"
        if result.status == "ok" and case.is_passed_by(result.stdout, tolerance):
            outcome = "passed"
        tests.append(outcome)
        if stop_early and outcome != "passed":
            break
    return tests
