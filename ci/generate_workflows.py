"""Write `.github/workflows/` from `ci/matrix.toml`: one file per package, and one reusable job.

python ci/generate_workflows.py            # write
python ci/generate_workflows.py --check    # only say which files would change
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADER = "# Generated from ci/matrix.toml by ci/generate_workflows.py; edit that table, then run `make workflows`.\n"

REUSABLE = """\
name: package
on:
  workflow_call:
    inputs:
      package: {description: "a folder under packages/, or stack", required: true, type: string}
      environment: {description: "base or engines (ci/env.py)", required: true, type: string}
      image: {description: "name:tag[@digest]", required: true, type: string}
      cuda: {description: "CUDA version of the image, empty on CPU", required: false, type: string, default: ""}
jobs:
  test:
    runs-on: ${{ inputs.cuda == '' && 'ubuntu-latest' || 'gpu' }}
    timeout-minutes: 90
    container: {image: "${{ inputs.image }}"}
    env:
      RL_TORCH_INDEX: ${{ inputs.cuda == '' && vars.RL_TORCH_INDEX || '' }}
      RL_REQUIRE_ENGINES: ${{ inputs.environment == 'engines' && '1' || '0' }}
      RL_REQUIRE_GPU: ${{ inputs.cuda != '' && '1' || '0' }}
    steps:
      - uses: actions/checkout@v4
      - uses: actions/cache@v4
        with:
          path: .venv
          key: venv-${{ inputs.image }}-${{ hashFiles('constraints/*', 'packages/*/pyproject.toml', 'ci/env.py') }}
      - name: Lint
        if: inputs.package == 'stack'
        run: make lint
      - name: Test
        run: python3 ci/test.py --package ${{ inputs.package }}
"""


def image_reference(image: dict[str, str]) -> str:
    """`name:tag`, with the digest once there is one."""
    pinned = f"@{image['digest']}" if image["digest"] else ""
    return f"{image['name']}:{image['tag']}{pinned}"


def siblings(root: Path, package: str) -> set[str]:
    """Folders of our packages that `package` depends on, directly or through others."""
    folders = {
        tomllib.loads(path.read_text())["project"]["name"]: path.parent.name
        for path in root.glob("packages/*/pyproject.toml")
    }
    found: set[str] = set()
    todo = [package]
    while todo:
        project = tomllib.loads((root / "packages" / todo.pop() / "pyproject.toml").read_text())["project"]
        names = {re.split(r"[^A-Za-z0-9-]", requirement)[0] for requirement in project.get("dependencies", [])}
        new = {folders[name] for name in names if name in folders} - found
        found |= new
        todo += sorted(new)
    return found


def watched_paths(root: Path, package: str) -> list[str]:
    """Path filter: the package, what it stands on, the constraints, and the files that run it."""
    if package == "stack":
        return ["**"]
    folders = [package, *sorted(siblings(root, package))]
    return [
        *(f"packages/{folder}/**" for folder in folders),
        "ci/**",
        "constraints/**",
        "pyproject.toml",
        f".github/workflows/{package}.yml",
        ".github/workflows/_package.yml",
    ]


def render_package(root: Path, package: str, rows: list[dict[str, str]], images: dict[str, dict[str, str]]) -> str:
    """One workflow: run when a watched path changes, one job per row."""
    paths = "".join(f'      - "{path}"\n' for path in watched_paths(root, package))
    lines = [HEADER, f"name: {package}\n", "on:\n", "  workflow_dispatch:\n"]
    lines += ["  push:\n", "    branches: [main]\n", f"    paths:\n{paths}", f"  pull_request:\n    paths:\n{paths}"]
    lines.append("jobs:\n")
    for row in rows:
        image = images[row["image"]]
        lines += [
            f"  {row['environment']}-{row['image']}:\n",
            "    uses: ./.github/workflows/_package.yml\n",
            "    with:\n",
            f"      package: {package}\n",
            f"      environment: {row['environment']}\n",
            f'      image: "{image_reference(image)}"\n',
            f'      cuda: "{image["cuda"]}"\n',
        ]
    return "".join(lines)


def render_all(root: Path) -> dict[str, str]:
    """File name -> text of every workflow that belongs to the table.

    Raises:
        KeyError: a row names an image that the table does not have.
    """
    matrix = tomllib.loads((root / "ci" / "matrix.toml").read_text())
    packages = list(dict.fromkeys(row["package"] for row in matrix["row"]))
    files = {"_package.yml": HEADER + REUSABLE}
    for package in packages:
        rows = [row for row in matrix["row"] if row["package"] == package]
        files[f"{package}.yml"] = render_package(root, package, rows, matrix["images"])
    return files


def drift(root: Path, wanted: dict[str, str]) -> list[str]:
    """Names of the files that differ from the table, are missing, or belong to no row."""
    folder = root / ".github" / "workflows"
    there = {path.name: path.read_text() for path in folder.glob("*.yml")}
    return sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name))


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Generate the workflow files.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file would change")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout")
    options = parser.parse_args(arguments)
    wanted = render_all(options.root)
    changed = drift(options.root, wanted)
    for name in changed:
        print(f"{'differs' if options.check else 'wrote' if name in wanted else 'removed'}: .github/workflows/{name}")
    if options.check:
        return 1 if changed else 0
    folder = options.root / ".github" / "workflows"
    folder.mkdir(parents=True, exist_ok=True)
    for name in changed:
        if name in wanted:
            (folder / name).write_text(wanted[name])
        else:
            (folder / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
