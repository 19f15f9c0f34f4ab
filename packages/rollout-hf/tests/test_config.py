from __future__ import annotations

import pytest
from rl_core.config.compose import compose
from rl_core.config.handed_over import TABLE
from rl_core.errors import ConfigError
from rl_core.plugins import reset_registry
from rl_rollout_hf.config import HfRolloutConfig


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setenv("RL_PLUGINS", "rl-rollout-hf,rl-testing")
    reset_registry()
    yield
    reset_registry()


BASE = ("actor_rollout_ref.rollout.name=hf", "actor_rollout_ref.actor.strategy=fake")


def test_the_section_is_mounted_and_read(registry):
    config = compose([*BASE, "actor_rollout_ref.rollout.hf.cache_gib=0.5"])
    assert HfRolloutConfig.below(config.tree.actor_rollout_ref.rollout).cache_gib == 0.5
    assert HfRolloutConfig.below(compose(list(BASE)).tree.actor_rollout_ref.rollout).cache_gib is None


@pytest.mark.parametrize("override", ["hf.cache_gib=0", "hf.cache=1"])
def test_bad_keys_are_refused(registry, override):
    with pytest.raises(ConfigError, match=r"rollout\.hf\.cache"):
        compose([*BASE, f"actor_rollout_ref.rollout.{override}"])


def test_every_common_key_is_read_or_has_a_reason():
    (keys,) = [entry.keys for entry in TABLE if entry.chosen_by.endswith("rollout.name")]
    plain = {key for key in keys if not key.endswith(".*")}
    assert not HfRolloutConfig.common_keys & set(HfRolloutConfig.inert_keys)
    assert plain >= HfRolloutConfig.common_keys | set(HfRolloutConfig.inert_keys)


@pytest.mark.parametrize(
    ("override", "reason"),
    [("enable_prefix_caching=false", "keeps no prefixes"), ("load_format=auto", "come from the trainer")],
)
def test_inert_keys_are_named(registry, override, reason):
    from rl_core.config.inert_choice import inert_choices

    config = compose([*BASE, f"actor_rollout_ref.rollout.{override}"])
    lines = inert_choices(config, {"actor_rollout_ref.rollout.name": HfRolloutConfig})
    assert [line for line in lines if override.split("=")[0] in line and reason in line]
