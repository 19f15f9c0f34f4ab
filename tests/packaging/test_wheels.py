"""What a user gets: each package's wheel, its contents and its metadata; and the meta distribution at the root."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from source_tree import ROOT

PROJECTS = sorted(ROOT.glob("packages/*/pyproject.toml"))
NAMES = [path.parent.name for path in PROJECTS]
IGNORED = shutil.ignore_patterns("__pycache__", ".pytest_cache", ".hypothesis", "dist")


def project(folder: str) -> dict:
    return tomllib.loads((ROOT / "packages" / folder / "pyproject.toml").read_text())["project"]


def version_of(folder: str) -> str:
    (file,) = (ROOT / "packages" / folder / "src").glob("*/_version.py")
    (version,) = re.findall(r'__version__ = "(.+)"', file.read_text())
    return version


def sibling_requirements(folder: str) -> list[Requirement]:
    own = {project(name)["name"] for name in NAMES}
    listed = [Requirement(text) for text in project(folder).get("dependencies", [])]
    return [requirement for requirement in listed if requirement.name in own]


def build(source: Path, out: Path) -> zipfile.ZipFile:
    """The wheel of a project folder, built by hatchling in a process of its own."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = out.glob("*.whl")
    return zipfile.ZipFile(wheel)


def metadata(wheel: zipfile.ZipFile):
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


@pytest.mark.heavy
@pytest.mark.parametrize("folder", NAMES)
def test_wheel_of_a_package(folder, tmp_path):
    # A copy, so that a build never leaves something in the checkout.
    source = shutil.copytree(ROOT / "packages" / folder, tmp_path / "source", ignore=IGNORED)
    wheel = build(source, tmp_path / "out")
    names = wheel.namelist()
    import_names = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert import_names == {project(folder)["name"].replace("-", "_")}
    (import_name,) = import_names
    assert f"{import_name}/py.typed" in names
    assert [name for name in names if name.endswith("dist-info/licenses/LICENSE")], names
    assert not [name for name in names if "tests" in name.split("/") or name.split("/")[-1].startswith("test_")]
    shipped = {name.split("/", 1)[1] for name in names if name.startswith(f"{import_name}/")}
    there = (ROOT / "packages" / folder / "src" / import_name).rglob("*")
    written = {
        str(path.relative_to(ROOT / "packages" / folder / "src" / import_name))
        for path in there
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped == written
    about = metadata(wheel)
    assert (about["Name"], about["Version"]) == (project(folder)["name"], version_of(folder))
    assert SpecifierSet(about["Requires-Python"]) == SpecifierSet(">=3.11,<3.14")
    has_entry_points = any(project(folder).get(key) for key in ("entry-points", "scripts"))
    assert has_entry_points is any(name.endswith("/entry_points.txt") for name in names)


@pytest.mark.heavy
def test_wheel_of_the_meta_distribution(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    wheel = build(source, tmp_path / "out")
    assert {name.split("/")[0] for name in wheel.namelist()} == {"rl_stack-0.1.0.dist-info"}
    required = {Requirement(text).name for text in metadata(wheel).get_all("Requires-Dist")}
    assert required == {project(folder)["name"] for folder in NAMES}


@pytest.mark.parametrize("folder", NAMES)
def test_siblings_are_required_by_compatible_release(folder):
    for requirement in sibling_requirements(folder):
        (name,) = (name for name in NAMES if project(name)["name"] == requirement.name)
        (specifier,) = requirement.specifier
        assert specifier.operator == "~=", requirement
        # Before 1.0 a minor release may break, and `~=0.3` would admit every 0.x: three parts.
        parts = 3 if Version(specifier.version).major == 0 else 2
        assert len(specifier.version.split(".")) == parts, requirement
        assert Version(version_of(name)) in requirement.specifier, f"{requirement} excludes the checkout's own version"


@pytest.mark.parametrize("folder", NAMES)
def test_version_is_one_number_everywhere(folder):
    changelog = (ROOT / "packages" / folder / "CHANGELOG.md").read_text()
    assert re.search(rf"^## {re.escape(version_of(folder))}\b", changelog, re.MULTILINE)
    assert project(folder)["dynamic"] == ["version"]


@pytest.mark.parametrize("folder", NAMES)
def test_every_package_has_its_papers(folder):
    package = ROOT / "packages" / folder
    assert (package / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    assert (package / "README.md").read_text().startswith(f"# {project(folder)['name']}\n")
    assert (package / "tests").is_dir()
    assert project(folder)["requires-python"] == ">=3.11,<3.14"
    assert project(folder)["license"] == "Apache-2.0"


def test_entry_points_are_named_like_their_distribution():
    for folder in NAMES:
        for name in project(folder).get("entry-points", {}).get("rl_core.plugins", {}):
            assert name == project(folder)["name"]
