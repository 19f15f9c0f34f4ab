"""Importing rl_core, and asking which plugins are installed, loads nothing heavy, whatever is installed around it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

HEAVY = (
    *("torch", "ray", "transformers", "tensordict", "numpy", "hydra", "omegaconf"),
    *("vllm", "sglang", "deepspeed", "megatron", "rl_dataproto", "rl_engine"),
)
REPORT = "import json, sys; sys.stderr.write(json.dumps(sorted(sys.modules)))"
LIST = "from rl_core.cli.main import main; assert main(['plugins', 'list']) == 0"


def modules_after(code: str) -> set[str]:
    """Names of all modules in a fresh process after it ran `code`."""
    environ = {name: value for name, value in os.environ.items() if name not in ("RL_PLUGINS", "RL_BLOCK_PLUGINS")}
    command = [sys.executable, "-c", f"{code}\n{REPORT}"]
    run = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return set(json.loads(run.stderr))


@pytest.mark.heavy
@pytest.mark.parametrize(
    "code",
    [
        "import rl_core",
        "from rl_core import hookimpl",
        "import rl_core.plugins",
        "import rl_core.builtins",
        "import rl_core.config",
        "import rl_core.errors",
        "import rl_core.cli.main",
        LIST,
        LIST.replace("'list'", "'list', '--json'"),
        LIST.replace("'list'", "'pairings'"),
        LIST.replace("'plugins', 'list'", "'--help'"),
    ],
)
def test_nothing_heavy_is_loaded(code):
    assert modules_after(code).isdisjoint(HEAVY)


@pytest.mark.heavy
def test_the_root_loads_only_itself():
    extra = modules_after("import rl_core") - modules_after("import __future__, importlib, typing")
    assert extra == {"rl_core", "rl_core._version"}


@pytest.mark.heavy
def test_a_heavy_import_would_be_seen():
    assert not modules_after("import rl_core\nimport numpy").isdisjoint(HEAVY)
