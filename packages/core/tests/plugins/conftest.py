from __future__ import annotations

import sys
import textwrap

import pytest
from rl_core.plugins import Registry, Selection, reset_registry


@pytest.fixture
def registry(monkeypatch):
    """A registry with nothing in it, whatever is installed around the test."""
    return Registry(Selection())


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.delenv("RL_PLUGINS", raising=False)
    monkeypatch.delenv("RL_BLOCK_PLUGINS", raising=False)
    reset_registry()
    yield
    reset_registry()


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Lay out a distribution as an installer would: metadata, entry point, module. Modules are forgotten afterwards."""
    before = set(sys.modules)
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def install(name, source="", *, version="1.0", entry_points=None, module=None, requires=()):
        module = module or name.replace("-", "_")
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        (info / "METADATA").write_text("\n".join([*lines, *(f"Requires-Dist: {need}" for need in requires), ""]))
        if entry_points is None:
            entry_points = {name: module}
        rows = [f"{entry} = {target}" for entry, target in entry_points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[rl_core.plugins]", *rows, ""]) if rows else "")
        if source is not None:
            path = site / f"{module.replace('.', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(source))

    yield install
    for module in set(sys.modules) - before:
        if getattr(sys.modules[module], "__file__", None) and str(site) in str(sys.modules[module].__file__):
            del sys.modules[module]
