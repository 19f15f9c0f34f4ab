from __future__ import annotations

import subprocess
import sys

from rl_core.plugins.records import RolloutRecord
from rl_rollout_hf.config import HfRolloutConfig
from rl_rollout_hf.plugin import rl_plugins
from rl_rollout_hf.server import HfRollout


def test_the_record_points_at_the_engine(monkeypatch):
    from rl_core.plugins import get_registry, reset_registry

    (record,) = rl_plugins()
    assert isinstance(record, RolloutRecord)
    assert (record.name, record.config_key, record.mount) == ("hf", "hf", ("rollout",))
    monkeypatch.setenv("RL_PLUGINS", "rl-rollout-hf")
    reset_registry()
    try:
        assert get_registry().load("rollout", "hf") is HfRollout
    finally:
        reset_registry()
    module, name = record.config.split(":")
    assert getattr(sys.modules[module], name) is HfRolloutConfig


def test_registration_and_configuration_load_nothing_heavy():
    code = (
        "import sys, rl_rollout_hf.plugin, rl_rollout_hf.config; "
        "print(sorted({'torch', 'transformers', 'numpy', 'rl_engine'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
