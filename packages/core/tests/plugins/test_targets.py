from __future__ import annotations

import os.path
from pathlib import Path

import pytest
from rl_core.errors import PluginLoadError
from rl_core.plugins.targets import resolve_target

OWNER = "reward 'acme' (rl-acme 1.0)"


def resolve(target):
    return resolve_target(target, OWNER)


def test_attributes_dotted_attributes_and_modules():
    assert resolve("os.path:join") is os.path.join
    assert resolve("pathlib:Path.cwd")() == Path.cwd()
    assert resolve("os.path") is os.path


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("absent_acme.engine:f", "its module 'absent_acme' is not there"),
        ("acme.gone:f", "its module 'acme.gone' is not there"),
        ("acme.needy:f", "'acme.needy' imports 'frobnicator', which is not installed. Install what provides"),
        ("acme.torn:f", "its own module 'acme.lost', which 'acme.torn' imports, is not there. Reinstall"),
        ("acme.failing:f", "importing 'acme.failing' raised ZeroDivisionError: division by zero"),
        ("acme.name:f", "importing 'acme.name' raised ImportError: cannot import name 'nothing_such'"),
        ("acme.fine:scor", "module 'acme.fine' has no 'scor'. Did you mean score"),
        ("acme.fine:score.nested", "module 'acme.fine' has no 'score.nested'"),
    ],
)
def test_what_is_missing_is_said_precisely(install, target, message):
    install("acme", "", module="acme.__init__", entry_points={})
    for name, source in {
        "needy": "import frobnicator",
        "torn": "import acme.lost",
        "failing": "1 / 0",
        "name": "from os import nothing_such",
        "fine": "def score(): ...",
    }.items():
        install(f"acme-{name}", source, module=f"acme.{name}", entry_points={})
    with pytest.raises(PluginLoadError) as caught:
        resolve(target)
    assert str(caught.value).startswith(f"{OWNER} does not load: ")
    assert message in str(caught.value)
    assert isinstance(caught.value.__cause__, ImportError | ZeroDivisionError | AttributeError)
