from __future__ import annotations

import pytest
from rl_core.errors import (
    PluginApiError,
    PluginBlockedError,
    PluginConflictError,
    PluginLoadError,
    PluginNotFoundError,
)
from rl_core.plugins import AdvantageRecord, BackendRecord, Distribution, RewardRecord, RolloutRecord, Status
from rl_core.plugins.explanations import conflict, missing, unknown_kind
from rl_core.plugins.lookup import Lookup


def rollout(name, **fields):
    return RolloutRecord(name=name, target="acme:R", summary="A rollout.", **fields)


def distribution(name, *records, version="1.0", **fields):
    return Distribution(name, version, "acme", records=records, **fields)


def asked(kind, name, *distributions):
    return missing(Lookup(distributions), kind, name)


ACME = distribution("rl-rollout-acme", rollout("acme", aliases=("acme2",)), version="0.3.1")


def test_a_known_plugin_that_is_not_installed():
    error = asked("rollout", "vllm", ACME)
    assert type(error) is PluginNotFoundError
    assert str(error).splitlines() == [
        "rollout 'vllm' is not installed.",
        "  Install it: pip install rl-rollout-vllm",
        "  Installed rollouts: acme (rl-rollout-acme 0.3.1).",
    ]


def test_a_known_plugin_that_its_installed_distribution_lacks():
    error = asked("recipe", "dapo", distribution("rl-recipes"))
    assert str(error).splitlines()[:2] == [
        "recipe 'dapo' is not in rl-recipes 1.0, which is installed.",
        "  Upgrade it: pip install -U rl-recipes",
    ]


def test_a_misspelt_name():
    error = asked("rollout", "acem2", ACME)
    assert type(error) is PluginNotFoundError
    assert str(error).splitlines() == [
        "rollout 'acem2' is not known.",
        "  Did you mean: acme2 (installed), acme (installed)?",
        "  Installed rollouts: acme (rl-rollout-acme 0.3.1).",
    ]


def test_a_misspelt_name_of_something_not_installed():
    assert "Did you mean: vllm (pip install rl-rollout-vllm)?" in str(asked("rollout", "vlm", ACME))


def test_nothing_like_it():
    error = asked("policy_loss", "zzz", distribution("acme", RewardRecord(name="zzz", target="a:b", summary="A.")))
    assert str(error).splitlines() == [
        "policy loss 'zzz' is not known.",
        "  Installed policy losses: none.",
        "  There is a reward of that name.",
    ]


def test_a_recipe_that_is_an_estimator():
    other = AdvantageRecord(name="zzz", target="a:b", summary="A.")
    assert "There is an advantage of that name." in str(asked("recipe", "zzz", distribution("acme", other)))


@pytest.mark.parametrize(
    ("kind", "name", "dist"),
    [("rollout", "vllm", "rl-rollout-vllm"), ("recipe", "dapo", "RL_Recipes"), ("reward", "my_x", "acme-my-x-reward")],
)
def test_blocked_or_broken_by_the_hint_or_by_the_distributions_name(kind, name, dist):
    blocked = asked(kind, name, distribution(dist, status=Status("blocked", "RL_BLOCK_PLUGINS names it")))
    assert type(blocked) is PluginBlockedError
    assert f"{name!r} is blocked: {dist} 1.0 is installed, but RL_BLOCK_PLUGINS names it." in str(blocked)
    assert f"--block-plugin {dist}" in str(blocked)
    cause = ValueError("why")
    broken = asked(kind, name, distribution(dist, status=Status("broken", "of old age"), cause=cause))
    assert type(broken) is PluginLoadError
    assert f"{name!r} is installed ({dist} 1.0) but broken: of old age" in str(broken)
    assert broken.__cause__ is cause


def test_distributions_that_could_not_be_read_are_named_with_the_cause():
    cause = ValueError("why")
    unread = distribution("acme", status=Status("broken", "of old age"), cause=cause)
    error = asked("reward", "zzz", unread)
    assert type(error) is PluginNotFoundError
    assert "Not readable, and may have it: acme 1.0 (broken: of old age)." in str(error)
    assert error.__cause__ is cause


def test_conflict_names_versions_and_both_ways_out():
    error = conflict("backend name 'x'", [distribution("rl-x", version="0.3.0"), distribution("acme-x", version="1.1")])
    assert error.splitlines() == [
        "backend name 'x' is registered twice: acme-x 1.1 and rl-x 0.3.0.",
        "  Uninstall one (pip uninstall rl-x), or set RL_BLOCK_PLUGINS=rl-x.",
    ]


def test_conflict_never_proposes_to_block_core():
    text = conflict("x", [distribution("rl-core"), distribution("acme"), distribution("bcme")])
    assert "registered 3 times" in text
    assert "RL_BLOCK_PLUGINS=bcme" in text
    assert "RL_BLOCK_PLUGINS=acme" in conflict("x", [distribution("rl-core"), distribution("acme")])


@pytest.mark.parametrize(
    ("hook_api", "way_out"),
    [("2.0", "Upgrade core: pip install -U rl-core"), ("0.9", "Upgrade the plugin: pip install -U rl-rollout-x")],
)
def test_hook_api_says_which_side_is_behind(hook_api, way_out):
    lookup = Lookup([distribution("rl-rollout-x", rollout("x", hook_api=hook_api))])
    with pytest.raises(PluginApiError) as caught:
        lookup.require("rollout", "x")
    assert str(caught.value).splitlines() == [
        f"rollout 'x' (rl-rollout-x 1.0) needs hook API {hook_api}; rl-core provides 1.0.",
        f"  {way_out}",
    ]


def test_a_broken_plugin_whose_records_are_known():
    record = BackendRecord(name="x", target="a:b", summary="A backend.")
    lookup = Lookup([distribution("acme", record, status=Status("broken", "there is no hook rl_plugin"))])
    with pytest.raises(PluginLoadError, match=r"backend 'x' \(acme 1.0\) is installed but broken: there is no hook"):
        lookup.require("backend", "x")


def test_unknown_kinds():
    assert "there is no kind of plugin 'rolout'. Did you mean 'rollout'?" in str(unknown_kind("rolout"))
    assert "The kinds are: backend, rollout," in str(unknown_kind("zzz"))


def test_conflicts_are_their_own_error():
    lookup = Lookup([distribution("a", rollout("x")), distribution("b", rollout("x"))])
    with pytest.raises(PluginConflictError):
        lookup.require("rollout", "x")
