"""What every test of the repository runs under."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# How long an example takes says something about the machine only. CI loads hypothesis' own profile, which also repeats.
settings.register_profile("house", deadline=None)
if "CI" not in os.environ:
    settings.load_profile("house")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what the code sandbox cannot do on this machine; with ``RL_REQUIRE_ENGINES=1`` it fails instead."""
    confined = [item for item in items if item.get_closest_marker("sandbox")]
    if not confined or os.environ.get("RL_REQUIRE_ENGINES") == "1":
        return
    from rl_rewards.sandbox import probe  # noqa: PLC0415 - only where such tests are collected

    missing = probe().missing
    if missing:
        reason = f"this kernel does not let the code sandbox keep code from {', '.join(missing)}"
        for item in confined:
            item.add_marker(pytest.mark.skip(reason=reason))
