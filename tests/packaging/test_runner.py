"""`ci/test.py` and `ci/env.py`: what makes a run green, tried on small trees of tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from scripts import load
from source_tree import ROOT

runner = load("ci/test.py")
env = runner.environments

PASSES = "def test_one():\n    assert True\n"
FAILS = "def test_two():\n    assert False\n"
SKIPS = "import pytest\ndef test_three():\n    pytest.skip('no such device')\n"
HEAVY = "import pytest\n@pytest.mark.heavy\ndef test_four():\n    assert True\n"
SLOW = "import pytest\n@pytest.mark.slow\ndef test_five():\n    assert True\n"
ENGINES = "import pytest\n@pytest.mark.engines\ndef test_six():\n    assert True\n"
BROKEN = "import a_module_that_is_not_there\n"
SHARES = '[[share]]\nname = "house"\nseconds = 9\npaths = [""]\n'
DECLARED = '[[skip]]\ntest = "tests/test_s.py::*"\nreason = "such device"\n'
MARKERS = ["heavy", "slow", "gpu", "multi_gpu", "engines"]


def checkout(root: Path, tests: dict[str, str], shares: str = SHARES) -> Path:
    """A repository that consists of tests only."""
    files = {
        "pyproject.toml": f"[tool.pytest.ini_options]\naddopts = ['--import-mode=importlib']\nmarkers = {MARKERS}\n",
        "ci/shares.toml": shares,
        "ci/matrix.toml": '[[row]]\npackage = "stack"\nenvironment = "base"\n',
        **{f"tests/{name}": text for name, text in tests.items()},
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def run(root: Path, *options: str, **variables: str) -> tuple[int, str]:
    command = [sys.executable, str(ROOT / "ci/test.py"), "--root", str(root), "--python", sys.executable, *options]
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "RL_REQUIRE_"))}
    done = subprocess.run(command, env=clean | variables, capture_output=True, text=True, timeout=240)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("tests", "shares", "code", "last", "says"),
    [
        ({"test_a.py": PASSES, "test_b.py": FAILS}, SHARES, 1, "1 passed, 1 failed, 0 skipped", "test_two"),
        ({"test_a.py": PASSES, "test_b.py": BROKEN}, SHARES, 1, None, "a_module_that_is_not_there"),
        ({"test_a.py": PASSES, "test_s.py": SKIPS}, SHARES, 1, "1 passed, 0 failed, 1 skipped", "not declared"),
        ({"test_a.py": PASSES, "test_s.py": SKIPS}, SHARES + DECLARED, 0, "1 passed, 0 failed, 1 skipped", "house"),
        ({}, SHARES, 1, "0 passed, 0 failed, 0 skipped", "no test ran"),
        ({"test_a.py": SLOW}, SHARES, 1, "0 passed, 0 failed, 0 skipped", "no test ran"),
    ],
    ids=["failure", "broken module", "undeclared skip", "declared skip", "no test", "only slow tests"],
)
def test_exit_code_and_last_line(tmp_path, tests, shares, code, last, says):
    found, output = run(checkout(tmp_path, tests, shares), "--phase", "light")
    assert found == code, output
    assert says in output
    closing = output.strip().splitlines()[-1]
    assert re.fullmatch(r"\d+ passed, \d+ failed, \d+ skipped", closing)
    assert last is None or closing == last, output


@pytest.mark.heavy
def test_every_phase_adds_to_the_last_line(tmp_path):
    tests = {"test_a.py": PASSES, "test_b.py": HEAVY, "test_c.py": SLOW}
    code, output = run(checkout(tmp_path, tests), "--slow")
    assert (code, output.strip().splitlines()[-1]) == (0, "3 passed, 0 failed, 0 skipped")


def test_engine_tests_that_cannot_run_are_named_and_are_an_error_where_required(tmp_path, monkeypatch):
    root = checkout(tmp_path, {"test_a.py": PASSES, "test_b.py": ENGINES})
    monkeypatch.setattr(env, "why_no_engines", lambda root: "too small")
    monkeypatch.delenv("RL_REQUIRE_ENGINES", raising=False)
    outcome = runner.Outcome()
    options = runner.argparse.Namespace(phase=["light"])
    runner.run_engines(root, options, runner.test_files(root, None), outcome)
    assert outcome.left_out == ["engines (tests/test_b.py): too small"]
    assert outcome.problems == []
    monkeypatch.setenv("RL_REQUIRE_ENGINES", "1")
    runner.run_engines(root, options, runner.test_files(root, None), outcome)
    assert outcome.problems == [
        "RL_REQUIRE_ENGINES=1, but these tests were left out: engines (tests/test_b.py): too small"
    ]


def test_engine_packages_and_marked_tests_run_in_their_environment(tmp_path, monkeypatch):
    root = checkout(tmp_path, {"test_a.py": PASSES, "test_b.py": ENGINES})
    (root / "packages/x/tests/a").mkdir(parents=True)
    (root / "packages/x/tests/a/test_c.py").write_text(PASSES)
    (root / "ci/matrix.toml").write_text('[[row]]\npackage = "x"\nenvironment = "engines"\n')
    runs = []
    monkeypatch.setattr(env, "why_no_engines", lambda root: None)
    monkeypatch.setattr(env, "make", lambda environment: 7.0)
    monkeypatch.setattr(runner, "pytest_run", lambda *arguments: runs.append(arguments[:-1]))
    outcome = runner.Outcome()
    runner.run_engines(root, runner.argparse.Namespace(phase=["light"]), runner.test_files(root, None), outcome)
    python = root / ".venv/engines/bin/python"
    everywhere = "not heavy and not slow{} and not gpu and not multi_gpu"
    assert runs == [
        (python, root, "light", everywhere.format(""), ["packages/x/tests"]),
        (python, root, "light", everywhere.format(" and engines"), ["tests/test_b.py"]),
    ]
    assert outcome.setup_s == 7.0


def test_device_tests_run_where_the_devices_are(tmp_path, monkeypatch):
    marks = {
        name: f"import pytest\n@pytest.mark.{name}\ndef test_x():\n    assert True\n" for name in ("gpu", "multi_gpu")
    }
    root = checkout(tmp_path, {f"test_{name}.py": text for name, text in marks.items()})
    one_device = subprocess.CompletedProcess([], 0, stdout="1\n")
    monkeypatch.setattr(runner.subprocess, "run", lambda *arguments, **options: one_device)
    monkeypatch.delenv("RL_REQUIRE_GPU", raising=False)
    runs = []
    monkeypatch.setattr(runner, "pytest_run", lambda *arguments: runs.append(arguments[2:-1]))
    outcome = runner.Outcome()
    options = runner.argparse.Namespace(phase=["light", "heavy"])
    runner.run_devices(Path("python"), root, options, runner.test_files(root, None), outcome)
    assert runs == [("heavy", "gpu and not engines and not slow", ["tests/test_gpu.py"])]
    assert outcome.left_out == ["multi_gpu (tests/test_multi_gpu.py): 1 CUDA devices here"]
    assert outcome.problems == []


def test_without_engine_tests_the_environment_is_not_made(tmp_path, monkeypatch, capsys):
    root = checkout(tmp_path, {"test_a.py": PASSES})
    monkeypatch.setenv("RL_REQUIRE_ENGINES", "1")
    monkeypatch.setattr(env, "make", lambda environment: pytest.fail("made"))
    outcome = runner.Outcome()
    runner.run_engines(root, runner.argparse.Namespace(phase=["light"]), runner.test_files(root, None), outcome)
    assert (outcome.left_out, outcome.problems) == ([], [])
    assert "it is not built" in capsys.readouterr().out


def test_the_first_share_with_a_matching_prefix_takes_a_test():
    shares = [{"name": "ray", "paths": ["a/ray/"]}, {"name": "house", "paths": [""]}]
    assert runner.share_of("a/ray/test_x.py::t", shares) == "ray"
    assert runner.share_of("a/rays.py::t", shares) == "house"
    with pytest.raises(ValueError, match="no share"):
        runner.share_of("b", shares[:1])


def test_every_share_of_the_repository_can_be_reached():
    shares = runner.tomllib.loads((ROOT / "ci/shares.toml").read_text())["share"]
    assert shares[-1]["paths"] == [""]
    assert len({share["name"] for share in shares}) == len(shares)
    for share in shares:
        assert all(runner.share_of(f"{path}test_x.py", shares) == share["name"] for path in share["paths"])


def test_markers_are_read_without_importing(tmp_path):
    path = tmp_path / "test_x.py"
    path.write_text(BROKEN + ENGINES)
    assert runner.marked(path, "engines")
    assert not runner.marked(path, "gpu")


def test_the_stamp_follows_what_the_environment_is_made_of(tmp_path, monkeypatch):
    for name in ("constraints/base.txt", "constraints/cpu.txt", "packages/a/pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci/matrix.toml").write_text('[[row]]\npackage = "a"\nenvironment = "base"\n')
    base = env.Environment("base", tmp_path)
    third_party, own = base.fingerprint()
    (tmp_path / "packages/a/pyproject.toml").write_text("y")
    assert base.fingerprint() == (third_party, env.digest(base.own_inputs(), "")) != (third_party, own)
    (tmp_path / "constraints/cpu.txt").write_text("y")
    assert base.fingerprint()[0] != third_party
    third_party = base.fingerprint()[0]
    monkeypatch.setenv("RL_TORCH_INDEX", "file:///somewhere")
    assert base.fingerprint()[0] != third_party


def test_engine_packages_stay_out_of_the_base_environment(tmp_path):
    for name in ("light", "heavy"):
        (tmp_path / "packages" / name).mkdir(parents=True)
        (tmp_path / "packages" / name / "pyproject.toml").touch()
    (tmp_path / "ci").mkdir()
    rows = '[[row]]\npackage = "{}"\nenvironment = "{}"\n'
    matrix = rows.format("light", "base") + rows.format("heavy", "engines") + rows.format("not-here-yet", "engines")
    (tmp_path / "ci/matrix.toml").write_text(matrix)
    assert env.engine_packages(tmp_path) == {"heavy"}
    assert [p.name for p in env.Environment("base", tmp_path).packages()] == ["light"]
    assert [p.name for p in env.Environment("engines", tmp_path).packages()] == ["heavy", "light"]


def test_packages_are_installed_with_the_extras_of_their_tests(tmp_path, monkeypatch):
    manifests = {
        "a": "[project]\nname = 'rl-a'\n",
        "b": "[project]\nname = 'rl-b'\n[project.optional-dependencies]\ncuda = ['x']\nwandb = ['y']\nboard = ['z']\n",
    }
    for name, text in manifests.items():
        (tmp_path / "packages" / name).mkdir(parents=True)
        (tmp_path / "packages" / name / "pyproject.toml").write_text(text)
    (tmp_path / "ci").mkdir()
    (tmp_path / "ci/matrix.toml").write_text("row = []\n")
    installed = []
    monkeypatch.setattr(env, "install", lambda environment, *requirements, options=(): installed.append(requirements))
    env.install_own(env.Environment("base", tmp_path))
    assert installed == [("-e", "packages/a", "-e", "packages/b"), ("rl-b[board,wandb]",)]


def test_pip_is_kept_from_installing_elsewhere(monkeypatch):
    for name in ("PIP_TARGET", "PIP_PREFIX", "PYTHONPATH", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, "/elsewhere")
    monkeypatch.setenv("PIP_USER", "1")
    monkeypatch.setenv("PIP_CERT", "/kept")
    variables = env.pip_environment()
    assert "/elsewhere" not in variables.values()
    assert (variables["PIP_USER"], variables["PIP_CERT"]) == ("0", "/kept")


def test_pip_is_tried_twice_and_then_explains(tmp_path, monkeypatch):
    environment = env.Environment("base", tmp_path)
    calls = []

    def fail(command, **_):
        calls.append(command)
        return subprocess.CompletedProcess(command, 1, "", "the index is asleep")

    monkeypatch.setattr(env.subprocess, "run", fail)
    monkeypatch.setattr(env.time, "sleep", lambda seconds: None)
    with pytest.raises(env.SetupError, match=r"pip failed twice in the base environment(.|\n)*the index is asleep"):
        env.install(environment, "pluggy")
    assert len(calls) == 2
    assert env.TORCH in calls[0]


def test_a_python_out_of_range_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(env.sys, "version_info", (3, 10, 0))
    with pytest.raises(env.SetupError, match=r"3\.11 to 3\.13"):
        env.make(env.Environment("base", tmp_path))
