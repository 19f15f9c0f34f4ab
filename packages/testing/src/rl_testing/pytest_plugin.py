"""Fixtures for the tests of plugins; loaded by pytest wherever rl-testing is installed.

Light: neither torch nor an engine is imported before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rl_core.plugins import Registry

# A failing contract shows its values as a test module would. pytest does that by itself for an installed wheel only.
pytest.register_assert_rewrite("rl_testing.contracts")


@pytest.fixture
def isolated_plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry with core's own parts and nothing that happens to be installed; the process has it for the test."""
    yield from _registry(monkeypatch, "")


@pytest.fixture
def registry_with_fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry with core's own parts and the fakes; the process has it for the test."""
    yield from _registry(monkeypatch, "rl-testing")


def _registry(monkeypatch: pytest.MonkeyPatch, plugins: str) -> Iterator[Registry]:
    from rl_core.plugins import get_registry, reset_registry  # noqa: PLC0415 - pytest itself must start without core

    monkeypatch.setenv("RL_PLUGINS", plugins)
    monkeypatch.delenv("RL_BLOCK_PLUGINS", raising=False)
    reset_registry()
    yield get_registry()
    reset_registry()
