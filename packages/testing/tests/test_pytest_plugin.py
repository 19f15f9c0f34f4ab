from __future__ import annotations

import os
import subprocess
import sys

from rl_core.plugins import get_registry


def test_isolated_plugins_leave_core_alone(isolated_plugins):
    assert get_registry() is isolated_plugins
    assert isolated_plugins.names("backend") == ()
    assert "gae" in isolated_plugins.names("advantage")


def test_the_fakes_are_the_only_plugins(registry_with_fakes, monkeypatch):
    assert get_registry() is registry_with_fakes
    assert {dist.name for dist in registry_with_fakes.distributions if dist.status.is_ok} == {"rl-core", "rl-testing"}


def test_blocking_from_outside_has_no_effect(monkeypatch, request):
    monkeypatch.setenv("RL_BLOCK_PLUGINS", "rl-testing")
    assert "fake" in request.getfixturevalue("registry_with_fakes").names("backend")
    assert "RL_BLOCK_PLUGINS" not in os.environ


def test_the_plugin_imports_nothing_heavy():
    code = "import sys, rl_testing.pytest_plugin; print(sorted({'torch', 'ray', 'tensordict', 'rl_core'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert out.strip() == "[]"


def test_assertions_of_suites_show_their_values():
    from rl_testing.contracts import columns

    assert columns.__spec__ is not None
    assert type(columns.__spec__.loader).__name__ == "AssertionRewritingHook"
