from __future__ import annotations

import pytest
from rl_core import builtins
from rl_core.config.estimators import ESTIMATOR_KEYS, estimator_contradictions, unread_by_estimator
from rl_core.config.schema import core_schema
from rl_core.plugins import AdvantageRecord

N = "actor_rollout_ref.rollout.n"
NAMES = [record.name for record in builtins.rl_plugins() if isinstance(record, AdvantageRecord)]


def test_the_table_names_every_estimator_of_core_and_keys_that_exist():
    assert list(ESTIMATOR_KEYS) == NAMES
    for keys in ESTIMATOR_KEYS.values():
        assert {f"algorithm.{key}" for key in keys} <= set(core_schema().keys)


@pytest.mark.parametrize("name", NAMES)
def test_keys_of_other_estimators_are_named(name, composed):
    keys = sorted({key for keys in ESTIMATOR_KEYS.values() for key in keys})
    values = {"gdpo_reward_keys": "[x]", "gdpo_reward_weights": "[1.0]", "norm_adv_by_std_in_grpo": "false"}
    given = [f"algorithm.{key}={values.get(key, '0.5')}" for key in keys]
    lines = dict(unread_by_estimator(composed(f"algorithm.adv_estimator={name}", f"{N}=4", *given)))
    assert set(lines) == {f"algorithm.{key}" for key in keys if key not in ESTIMATOR_KEYS[name]}


def test_who_would_read_it_is_said(composed):
    ((path, reason),) = unread_by_estimator(composed("algorithm.adv_estimator=rloo", f"{N}=4", "algorithm.gamma=0.9"))
    assert path == "algorithm.gamma"
    assert reason == "advantage estimator 'rloo' does not read it; gae, reinforce_plus_plus would"


def test_nothing_is_said_about_the_keys_of_somebody_elses_estimator(composed):
    assert list(unread_by_estimator(composed("algorithm.adv_estimator=mine", "algorithm.gamma=0.9"))) == []


GDPO = "algorithm.adv_estimator=gdpo"
TWO = "algorithm.gdpo_reward_keys=[right,short]"


@pytest.mark.parametrize(
    ("overrides", "severity", "text"),
    [
        (["algorithm.adv_estimator=grpo_passk"], "error", "with the second best"),
        ([GDPO], "error", "algorithm.gdpo_reward_keys names none"),
        ([GDPO, "algorithm.gdpo_reward_keys=[x,x]"], "error", "names a reward twice: x, x"),
        ([GDPO, TWO, "algorithm.gdpo_reward_weights=[1.0]"], "error", "has 1 weights for the 2 rewards"),
        ([GDPO, TWO, "algorithm.use_kl_in_reward=true"], "error", "where the penalty does not stand"),
        (
            ["algorithm.use_pf_ppo=true", "algorithm.pf_ppo.reweight_method=max_min"],
            "warning",
            "rollout.n is 1: all rows weigh the same",
        ),
        (
            ["algorithm.use_pf_ppo=true", "algorithm.pf_ppo.reweight_method=max_random"],
            "warning",
            "rollout.n is 1: all rows weigh the same",
        ),
    ],
)
def test_each_contradiction(overrides, severity, text, composed):
    ((found, message),) = estimator_contradictions(composed(*overrides))
    assert found == severity
    assert text in message


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["algorithm.adv_estimator=grpo_passk", f"{N}=2"],
        [GDPO, TWO],
        [GDPO, TWO, "algorithm.gdpo_reward_weights=[1.0,0.5]"],
        ["algorithm.use_pf_ppo=true"],
        ["algorithm.use_pf_ppo=true", "algorithm.pf_ppo.reweight_method=max_random", f"{N}=4"],
    ],
)
def test_what_fits(overrides, composed):
    assert list(estimator_contradictions(composed(*overrides))) == []
