from __future__ import annotations

from importlib import metadata

import pytest
import rl_core


def test_version_is_that_of_the_distribution():
    assert rl_core.__version__ == metadata.version("rl-core")


@pytest.mark.parametrize("name", [name for name in rl_core.__all__ if name != "__version__"])
def test_lazy_names_are_those_of_their_home(name):
    from importlib import import_module

    assert getattr(rl_core, name) is getattr(import_module(rl_core._HOMES[name]), name)
    assert name in dir(rl_core)


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="module 'rl_core' has no attribute 'DataPorto'"):
        _ = rl_core.DataPorto
