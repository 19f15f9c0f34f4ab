from __future__ import annotations

import pytest
from rl_core.config.compose import compose
from rl_core.config.handed_over import TABLE
from rl_core.config.inert import matches
from rl_core.errors import ConfigError
from rl_core.plugins import reset_registry
from rl_rollout_vllm.config import VllmRolloutConfig


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setenv("RL_PLUGINS", "rl-rollout-vllm,rl-testing")
    reset_registry()
    yield
    reset_registry()


BASE = ("actor_rollout_ref.rollout.name=vllm", "actor_rollout_ref.actor.strategy=fake")


def test_the_section_is_mounted_and_read(registry):
    config = compose([*BASE, "actor_rollout_ref.rollout.vllm.cache_gib=0.5"])
    assert VllmRolloutConfig.below(config.tree.actor_rollout_ref.rollout).cache_gib == 0.5
    assert VllmRolloutConfig.below(compose(list(BASE)).tree.actor_rollout_ref.rollout).cache_gib is None


@pytest.mark.parametrize("override", ["vllm.cache_gib=0", "vllm.cache=1"])
def test_bad_keys_are_refused(registry, override):
    with pytest.raises(ConfigError, match=r"rollout\.vllm\.cache"):
        compose([*BASE, f"actor_rollout_ref.rollout.{override}"])


def test_every_common_key_is_one_that_core_hands_over():
    (keys,) = [entry.keys for entry in TABLE if entry.chosen_by.endswith("rollout.name")]
    mentioned = VllmRolloutConfig.common_keys | set(VllmRolloutConfig.inert_keys)
    assert not VllmRolloutConfig.common_keys & set(VllmRolloutConfig.inert_keys)
    assert [key for key in mentioned if not any(matches(known, key.removesuffix(".*")) for known in keys)] == []


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("quantization_config_file=q.json", "hf_overrides"),
        ("moe_load_balance_metrics_interval=5", "does not read it"),
        ("engine_kwargs.sglang.x=1", "does not read it"),
    ],
)
def test_inert_keys_are_named(registry, override, reason):
    from rl_core.config.inert_choice import inert_choices

    config = compose([*BASE, f"actor_rollout_ref.rollout.{override}"])
    lines = inert_choices(config, {"actor_rollout_ref.rollout.name": VllmRolloutConfig})
    assert [line for line in lines if override.split("=")[0] in line and reason in line]
