from __future__ import annotations

import pytest
from rl_core import builtins
from rl_core.plugins import Registry, Selection

RECORDS = tuple(builtins.rl_plugins())


@pytest.fixture(scope="module")
def registry():
    registry = Registry(Selection())
    registry.register_distribution("rl-core", "0", builtins)
    return registry


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: f"{record.kind}-{record.name}")
def test_every_target_resolves(registry, record):
    assert callable(registry.load(record.kind, record.name))


def test_what_core_provides(registry):
    names = {kind: registry.names(kind) for kind in {record.kind for record in RECORDS}}
    assert names == {
        "advantage": (
            *("gae", "gdpo", "gpg", "grpo", "grpo_passk", "opo", "optimal_token_baseline", "reinforce_plus_plus"),
            *("reinforce_plus_plus_baseline", "remax", "rloo", "tir_optimal_token_baseline"),
        ),
        "policy_loss": (
            *("cispo", "clip_cov", "dppo_kl", "dppo_tv", "dro", "geo_mean", "gpg", "gspo", "kl_cov", "sapo"),
            "vanilla",
        ),
        "loss_aggregation": (
            "seq-mean-token-mean",
            "seq-mean-token-sum",
            "seq-mean-token-sum-norm",
            "token-mean",
            "token-sum",
        ),
        "kl_estimator": ("abs", "k1", "k2", "k3"),
        "resharding": ("generic",),
        "reward_manager": ("naive",),
        "reward_model": ("outcome",),
        "sampler": ("colocate_async", "sync"),
        "dataset": ("prompts",),
        "tracker": ("console", "jsonl", "tensorboard", "wandb"),
        "command": ("check", "config", "data", "eval", "export", "parity", "plugins", "rm", "sft", "train"),
    }


@pytest.mark.parametrize(("alias", "name"), [("kl", "k1"), ("mse", "k2"), ("low_var_kl", "k3")])
def test_kl_estimators_have_their_common_names(registry, alias, name):
    assert registry.record("kl_estimator", alias).name == name


def test_what_the_estimators_need(registry):
    assert registry.record("advantage", "gae").needs == {"values"}
    assert registry.record("advantage", "grpo").needs == {"group"}
    assert registry.record("advantage", "remax").needs == {"greedy_baseline"}
    for name in ("optimal_token_baseline", "tir_optimal_token_baseline"):
        assert registry.record("advantage", name).needs == {"group", "sum_pi_squared"}


@pytest.mark.parametrize("name", ["grpo", "rloo"])
def test_estimators_have_the_names_of_their_vectorised_twins_elsewhere(registry, name):
    assert registry.record("advantage", f"{name}_vectorized").name == name


def test_every_preparation_resolves(registry):
    prepared = {record.name for record in RECORDS if getattr(record, "prepare", None)}
    assert prepared == {"clip_cov", "kl_cov"}
    assert all(callable(registry.load_prepare(name)) for name in prepared)


def test_losses_of_whole_responses_say_how_they_are_aggregated(registry):
    advised = {record.name: record.aggregation for record in RECORDS if getattr(record, "aggregation", None)}
    assert advised == dict.fromkeys(("geo_mean", "gspo", "sapo"), "seq-mean-token-mean")
    assert set(advised.values()) <= set(registry.names("loss_aggregation"))


def test_the_resharding_of_core_fits_everything(registry):
    record = registry.record("resharding", "generic")
    assert (record.backend, record.rollout, record.transport) == ("*", "*", "generic")
