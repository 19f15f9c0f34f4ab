"""The one test runner: `make test`, `make test-slow` and continuous integration all come through here.

Phases, each a pytest run of its own: `light` (all cores), then `heavy` (one process, one test after another), with
`--slow` also `slow`. They run in the base environment; tests of packages that need real engines run in the engines
environment, and tests for devices run where the devices are. What is left out is printed with the reason; with
RL_REQUIRE_ENGINES=1 (RL_REQUIRE_GPU=1) leaving out engine (GPU) tests is a failure.

Ends with a table of seconds per share beside their budgets (ci/shares.toml) and one line
`N passed, N failed, N skipped`. Fails on any failure, on any skip that ci/shares.toml does not declare, and when no
test ran.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import env as environments

ROOT = Path(__file__).resolve().parents[1]
DEVICE_MARKERS = ("gpu", "multi_gpu")
NOT_HERE = " and not ".join(("", *DEVICE_MARKERS))
LIMIT_S = {"light": 180, "heavy": 900, "slow": 7200}  # one test
RUN_LIMIT_S = {"light": 1800, "heavy": 4500, "slow": 6 * 3600}  # one pytest run
TOO_LATE = 124
PHASES = {
    "light": "not heavy and not slow",
    "heavy": "heavy and not slow",
    "slow": "slow",
}
TEST_VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_NO_USAGE_STATS": "1",
    "WANDB_MODE": "offline",
}


@dataclass(frozen=True)
class Result:
    """One test as the recorder wrote it; `wall` is what it cost of the run's wall time."""

    test: str
    outcome: str
    reason: str
    wall: float


@dataclass
class Outcome:
    """Everything that decides the exit code and the closing lines."""

    results: list[Result] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    setup_s: float = 0.0
    overhead_s: float = 0.0

    def count(self, outcome: str) -> int:
        """How many tests ended like that."""
        return sum(result.outcome == outcome for result in self.results)


def pytest_run(python: Path, root: Path, phase: str, markers: str, paths: list[str], outcome: Outcome) -> None:
    """One pytest run over `paths`; adds its tests, its start-up cost and its problems to `outcome`."""
    workers = os.cpu_count() or 1 if phase == "light" else 1
    spread = ["-n", str(workers), "--dist", "worksteal"] if phase == "light" else ["-p", "no:xdist"]
    with tempfile.TemporaryDirectory() as scratch:
        lines = Path(scratch) / "lines"
        command = [str(python), "-m", "pytest", "-q", "-p", "pytest_report", "--report-lines", str(lines), *spread]
        command += ["-m", markers, f"--timeout={LIMIT_S[phase]}", "--durations=5", "--no-header"]
        command += ["--continue-on-collection-errors", *paths]
        variables = os.environ | TEST_VARIABLES | {"PYTHONPATH": str(Path(__file__).parent / "reporting")}
        print(f"\n== {phase}: {' '.join(paths)}", flush=True)
        started = time.monotonic()
        try:
            code = subprocess.run(command, cwd=root, env=variables, timeout=RUN_LIMIT_S[phase]).returncode
        except subprocess.TimeoutExpired:
            code = TOO_LATE
        wall = time.monotonic() - started
        found = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
    results = [Result(r["test"], r["outcome"], r["reason"], r["seconds"] / workers) for r in found]
    outcome.results += results
    outcome.overhead_s += max(0.0, wall - sum(result.wall for result in results))
    # 1: tests failed, and each is in the list; 5: no test has these markers here.
    if code == TOO_LATE:
        outcome.problems.append(f"the {phase} run of pytest was ended after {RUN_LIMIT_S[phase]} s")
    elif code not in (0, 5) and not (code == 1 and any(result.outcome == "failed" for result in results)):
        outcome.problems.append(f"the {phase} run of pytest ended with code {code}")


def test_files(root: Path, package: str | None) -> list[Path]:
    """Every test module of the checkout, or of one package ("stack": what spans packages)."""
    folders = {None: ["packages/*/tests", "tests"], "stack": ["tests"]}.get(package, [f"packages/{package}/tests"])
    return sorted(path for folder in folders for path in root.glob(f"{folder}/**/test_*.py"))


def marked(path: Path, marker: str) -> bool:
    """Whether a module names `pytest.mark.<marker>` anywhere; read, not imported."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == marker
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "mark"
        for node in ast.walk(tree)
    )


def run_phases(
    python: Path, root: Path, options: argparse.Namespace, tier: str, paths: list[str], out: Outcome
) -> None:
    """The chosen phases over `paths`; `tier` is the marker expression that follows `not` or selects a device."""
    for phase in options.phase:
        pytest_run(python, root, phase, PHASES[phase] + tier, paths, out)


def run_engines(root: Path, options: argparse.Namespace, files: list[Path], outcome: Outcome) -> None:
    """The engines tier: build its environment only when something needs it, and say why when it is left out."""
    packages = environments.engine_packages(root)
    own = sorted({f"packages/{p.relative_to(root).parts[1]}/tests" for p in files if owner(p, root) in packages})
    spanning = [str(p.relative_to(root)) for p in files if owner(p, root) not in packages and marked(p, "engines")]
    if not own and not spanning:
        print("\n== engines: no package here needs the engines environment yet; it is not built")
        return
    reason = environments.why_no_engines(root)
    engines = environments.Environment("engines", root)
    if reason is None:
        try:
            outcome.setup_s += environments.make(engines)
        except environments.SetupError as error:
            reason = str(error)
    if reason is not None:
        leave_out(f"engines ({', '.join([*own, *spanning])}): {reason}", "RL_REQUIRE_ENGINES", outcome)
        return
    if own:
        run_phases(engines.python, root, options, NOT_HERE, own, outcome)
    if spanning:
        run_phases(engines.python, root, options, " and engines" + NOT_HERE, spanning, outcome)


def run_devices(python: Path, root: Path, options: argparse.Namespace, files: list[Path], outcome: Outcome) -> None:
    """Tests marked gpu and multi_gpu, one after another, where there are enough devices."""
    paths = {m: [str(p.relative_to(root)) for p in files if marked(p, m)] for m in DEVICE_MARKERS}
    if not any(paths.values()):
        return
    code = "import torch; print(torch.cuda.device_count())"
    devices = int(subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout)
    for marker, needed in (("gpu", 1), ("multi_gpu", 2)):
        if paths[marker] and devices < needed:
            leave_out(f"{marker} ({', '.join(paths[marker])}): {devices} CUDA devices here", "RL_REQUIRE_GPU", outcome)
        elif paths[marker]:
            speed = "" if "slow" in options.phase else " and not slow"
            pytest_run(python, root, "heavy", f"{marker} and not engines{speed}", paths[marker], outcome)


def leave_out(what: str, required: str, outcome: Outcome) -> None:
    """Record a tier that does not run; an error where the named variable demands it."""
    outcome.left_out.append(what)
    if os.environ.get(required) == "1":
        outcome.problems.append(f"{required}=1, but these tests were left out: {what}")


def owner(path: Path, root: Path) -> str | None:
    """The package folder a test module belongs to; None for the spanning tests."""
    parts = path.relative_to(root).parts
    return parts[1] if parts[0] == "packages" else None


def undeclared_skips(results: list[Result], declared: list[dict[str, str]]) -> Iterator[Result]:
    """Skips that no `[[skip]]` entry names with that reason."""
    for result in results:
        if result.outcome == "skipped" and not any(
            fnmatch.fnmatchcase(result.test, entry["test"]) and entry["reason"] in result.reason for entry in declared
        ):
            yield result


def share_of(test: str, shares: list[dict[str, object]]) -> str:
    """Name of the first share with a path prefix of this test id."""
    for share in shares:
        if any(test.startswith(prefix) for prefix in share["paths"]):  # type: ignore[attr-defined]
            return str(share["name"])
    msg = f"no share in ci/shares.toml takes {test}: the last one needs the path ''"
    raise ValueError(msg)


def print_shares(outcome: Outcome, shares: list[dict[str, object]]) -> None:
    """Seconds of wall time per share beside the budget."""
    spent: dict[str, float] = defaultdict(float, setup=outcome.setup_s)
    for result in outcome.results:
        spent[share_of(result.test, shares)] += result.wall
    print(f"\n{'share':<16}{'seconds':>9}{'budget':>8}")
    for share in shares:
        name, budget = str(share["name"]), float(str(share["seconds"]))
        if spent[name]:
            print(f"{name:<16}{spent[name]:>9.1f}{budget:>8.0f}{'  over' if spent[name] > budget else ''}")
    print(f"{'start, collect':<16}{outcome.overhead_s:>9.1f}{'-':>8}")


def close(outcome: Outcome, settings: dict[str, list]) -> int:
    """Print the table, what was left out, every problem and the last line; return the exit code."""
    print_shares(outcome, settings["share"])
    for text in outcome.left_out:
        print(f"left out: {text}")
    skips = list(undeclared_skips(outcome.results, settings.get("skip", [])))
    outcome.problems += [f"skipped, not declared in ci/shares.toml: {s.test}: {s.reason}" for s in skips]
    if not outcome.results:
        outcome.problems.append("no test ran")
    for text in outcome.problems:
        print(f"problem: {text}")
    failed = outcome.count("failed")
    print(f"{outcome.count('passed')} passed, {failed} failed, {outcome.count('skipped')} skipped", flush=True)
    return 1 if failed or outcome.problems else 0


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Run the tests.")
    parser.add_argument("--slow", action="store_true", help="also the tests marked slow")
    parser.add_argument("--phase", action="append", choices=tuple(PHASES), help="only this phase (may be repeated)")
    parser.add_argument("--package", help="only packages/NAME/tests; 'stack' for what spans packages")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout to test")
    parser.add_argument("--python", type=Path, help="an interpreter that stands in for the base environment")
    options = parser.parse_args(arguments)
    options.phase = options.phase or ["light", "heavy", *(["slow"] if options.slow else [])]
    root, outcome = options.root.resolve(), Outcome()
    settings = tomllib.loads((root / "ci" / "shares.toml").read_text())
    base = environments.Environment("base", root)
    if options.python is None:
        try:
            outcome.setup_s += environments.make(base)
            if "slow" in options.phase:
                environments.install_slow(base)
        except environments.SetupError as error:
            outcome.problems.append(str(error))
            return close(outcome, settings)
    python = options.python or base.python
    files = test_files(root, options.package)
    heavy = environments.engine_packages(root)
    light = [path for path in files if owner(path, root) not in heavy]
    if light:
        paths = sorted({str(Path(*path.relative_to(root).parts[: 3 if owner(path, root) else 1])) for path in light})
        run_phases(python, root, options, " and not engines" + NOT_HERE, paths, outcome)
    run_engines(root, options, files, outcome)
    run_devices(python, root, options, light, outcome)
    return close(outcome, settings)


if __name__ == "__main__":
    sys.exit(main())
