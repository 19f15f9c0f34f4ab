from __future__ import annotations

import pytest
from rl_core.plugins import KINDS, RewardRecord
from rl_core.plugins.hints import DEFAULT_BACKEND, KNOWN_PLUGINS, known_distribution, known_names


def test_rows_have_a_kind_a_valid_name_and_a_distribution_of_ours():
    for (kind, name), distribution in KNOWN_PLUGINS.items():
        assert kind in KINDS
        RewardRecord(name=name, target="a:b", summary="Only the name is checked.")
        assert distribution.startswith("rl-")


def test_the_default_backend_can_be_installed():
    assert known_distribution("backend", DEFAULT_BACKEND) == "rl-backend-fsdp"


def test_lookups():
    assert known_distribution("rollout", "nothing") is None
    assert known_names("rollout") == ("hf", "vllm", "sglang")
    assert known_names("tracker") == ()


def test_the_table_is_read_only():
    with pytest.raises(TypeError):
        KNOWN_PLUGINS["backend", "mine"] = "mine"
