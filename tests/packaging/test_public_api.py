"""The public names of each package are those of its `api.txt`; `make api` rewrites the files."""

from __future__ import annotations

import importlib

import pytest
from scripts import load
from source_tree import ROOT

update_api = load("ci/update_api.py")
PACKAGES = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_public_names_are_checked_in(package):
    assert update_api.api_text(package) == (package / "api.txt").read_text(), "run `make api`"


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_every_public_name_is_there(package, monkeypatch):
    # A package of an engine is not installed in this environment; its public names need no engine.
    monkeypatch.syspath_prepend(package / "src")
    module = importlib.import_module(update_api.import_name(package))
    assert sorted(module.__all__) == update_api.public_names(package), "written in the source, not made at import"
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert len(module.__all__) == len(set(module.__all__))


def test_names_are_read_from_the_source(tmp_path):
    module = tmp_path / "src" / "a" / "__init__.py"
    module.parent.mkdir(parents=True)
    module.write_text("import no_such_module\n__all__: list[str] = ['b', 'a']\n")
    assert update_api.api_text(tmp_path) == "a\nb\n"
    module.write_text("x = 1\n")
    with pytest.raises(ValueError, match="has no __all__"):
        update_api.api_text(tmp_path)


def test_a_package_has_one_import_name(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "src" / name).mkdir(parents=True)
        (tmp_path / "src" / name / "__init__.py").touch()
    with pytest.raises(ValueError, match=r"exactly one import package.*\['a', 'b'\]"):
        update_api.import_name(tmp_path)
