"""`ci/matrix.toml` and what is generated from it."""

from __future__ import annotations

import tomllib

import pytest
import yaml
from scripts import load
from source_tree import ROOT

generate = load("ci/generate_workflows.py")
MATRIX = tomllib.loads((ROOT / "ci/matrix.toml").read_text())


def pins(file: str) -> dict[str, str]:
    lines = (ROOT / "constraints" / file).read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


def test_the_workflow_files_are_those_of_the_table():
    assert generate.drift(ROOT, generate.render_all(ROOT)) == [], "run `make workflows`"


def test_drift_sees_edited_missing_and_orphaned_files(tmp_path):
    folder = tmp_path / ".github/workflows"
    folder.mkdir(parents=True)
    (folder / "a.yml").write_text("edited")
    (folder / "c.yml").write_text("belongs to no row")
    assert generate.drift(tmp_path, {"a.yml": "x", "b.yml": "y"}) == ["a.yml", "b.yml", "c.yml"]


def test_every_package_has_a_row_and_every_row_a_package():
    rows = {row["package"] for row in MATRIX["row"]}
    assert rows == {path.parent.name for path in ROOT.glob("packages/*/pyproject.toml")} | {"stack"}


def test_rows_are_complete_and_a_package_has_one_environment():
    environments: dict[str, set[str]] = {}
    for row in MATRIX["row"]:
        assert row.keys() == {"package", "environment", "image"}
        assert row["image"] in MATRIX["images"]
        environments.setdefault(row["package"], set()).add(row["environment"])
    assert all(found in ({"base"}, {"engines"}) for found in environments.values())


@pytest.mark.parametrize("name", sorted(MATRIX["images"]))
def test_an_image_says_what_it_holds(name):
    image = MATRIX["images"][name]
    assert image.keys() == {"name", "tag", "digest", "python", "torch", "cuda"}
    assert image["digest"] == "" or image["digest"].startswith("sha256:")
    assert image["torch"] == pins("cuda.txt" if image["cuda"] else "cpu.txt")["torch"]


@pytest.mark.parametrize("name", sorted(generate.render_all(ROOT)))
def test_files_are_yaml_and_jobs_point_at_the_reusable_one(name):
    parsed = yaml.safe_load(generate.render_all(ROOT)[name])
    # YAML reads the key `on` as the boolean.
    assert {"name", True, "jobs"} <= parsed.keys()
    if name == "_package.yml":
        return
    wanted = parsed["jobs"].values()
    assert all(job["uses"] == "./.github/workflows/_package.yml" for job in wanted)
    inputs = yaml.safe_load(generate.REUSABLE)[True]["workflow_call"]["inputs"]
    assert all(job["with"].keys() <= inputs.keys() for job in wanted)


def test_a_package_is_tested_when_what_it_stands_on_changes():
    assert "packages/core/**" in generate.watched_paths(ROOT, "testing")
    assert "packages/dataproto/**" in generate.watched_paths(ROOT, "testing")
    assert "packages/testing/**" not in generate.watched_paths(ROOT, "core")


def test_a_digest_pins_the_image():
    image = {"name": "python", "tag": "3.11", "digest": ""}
    assert generate.image_reference(image) == "python:3.11"
    assert generate.image_reference(image | {"digest": "sha256:ab"}) == "python:3.11@sha256:ab"
