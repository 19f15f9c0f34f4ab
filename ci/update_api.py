"""Write `api.txt` beside each package's `pyproject.toml`: the sorted `__all__` of its import package.

A test compares the two, so a change of the public surface shows up in review as a change of that file.

    python ci/update_api.py
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def import_name(package: Path) -> str:
    """The one import package under `src/`.

    Raises:
        ValueError: there is none, or more than one.
    """
    found = sorted(path.parent.name for path in package.glob("src/*/__init__.py"))
    if len(found) != 1:
        msg = f"{package} must hold exactly one import package under src/, found {found}"
        raise ValueError(msg)
    return found[0]


def public_names(package: Path) -> list[str]:
    """Sorted `__all__` of the import package, read from its source.

    Raises:
        ValueError: it has none, or not one written as a list of strings.
    """
    source = package / "src" / import_name(package) / "__init__.py"
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            return sorted(ast.literal_eval(node.value))  # type: ignore[attr-defined]
    msg = f"{source} has no __all__; list the public names there as strings"
    raise ValueError(msg)


def api_text(package: Path) -> str:
    """What `api.txt` of this package must hold."""
    return "".join(f"{name}\n" for name in public_names(package))


def main() -> int:
    """Rewrite every file; say which changed."""
    for project in sorted(ROOT.glob("packages/*/pyproject.toml")):
        target = project.parent / "api.txt"
        text = api_text(project.parent)
        if not target.exists() or target.read_text() != text:
            target.write_text(text)
            print(f"wrote {target.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
