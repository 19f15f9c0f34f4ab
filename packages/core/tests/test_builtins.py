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
        "advantage": ("gae", "grpo"),
        "policy_loss": ("vanilla",),
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
        "sampler": ("colocate_async", "sync"),
        "dataset": ("prompts",),
        "tracker": ("console", "jsonl", "tensorboard", "wandb"),
        "command": ("check", "config", "eval", "plugins", "sft", "train"),
    }


@pytest.mark.parametrize(("alias", "name"), [("kl", "k1"), ("mse", "k2"), ("low_var_kl", "k3")])
def test_kl_estimators_have_their_common_names(registry, alias, name):
    assert registry.record("kl_estimator", alias).name == name


def test_what_the_estimators_need(registry):
    assert registry.record("advantage", "gae").needs == {"values"}
    assert registry.record("advantage", "grpo").needs == {"group"}


def test_the_resharding_of_core_fits_everything(registry):
    record = registry.record("resharding", "generic")
    assert (record.backend, record.rollout, record.transport) == ("*", "*", "generic")
