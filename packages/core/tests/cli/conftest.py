from __future__ import annotations

import pytest
from rl_core.plugins import get_registry, reset_registry


@pytest.fixture(autouse=True)
def _only_core(monkeypatch):
    """Nothing that happens to be installed changes what a command prints."""
    monkeypatch.setenv("RL_PLUGINS", "")
    monkeypatch.setenv("RL_BLOCK_PLUGINS", "")
    reset_registry()
    yield
    reset_registry()


@pytest.fixture
def register():
    """Register records as a distribution: register(name, *records, version="1.0")."""

    def register(name, *records, version="1.0"):
        return get_registry().register_distribution(name, version, records)

    return register
