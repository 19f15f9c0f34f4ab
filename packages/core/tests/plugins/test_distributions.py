from __future__ import annotations

import types

import pytest
from rl_core import hookimpl
from rl_core.plugins import RewardRecord
from rl_core.plugins.distributions import (
    RecordsPlugin,
    Status,
    api_status,
    canonical_name,
    load_distribution,
    new_plugin_manager,
)


def reward(name="acme", **fields):
    return RewardRecord(**{"name": name, "target": "acme:f", "summary": "A reward.", **fields})


def load(**functions):
    """Load a plugin module that has these attributes."""
    module = types.ModuleType("acme_plugin")
    vars(module).update(functions)
    return load_distribution("acme", "1.0", "acme_plugin", module)


def giving(*records):
    @hookimpl
    def rl_plugins():
        return records

    return rl_plugins


def test_a_good_plugin():
    loaded = load(rl_plugins=giving(reward("a"), reward("b")))
    assert loaded.status == Status("ok")
    assert [record.name for record in loaded.records] == ["a", "b"]
    assert (str(loaded), str(loaded.status), loaded.cause) == ("acme 1.0", "ok", None)


def test_a_generator_and_a_renamed_implementation():
    @hookimpl(specname="rl_plugins")
    def mine():
        yield reward("a")

    assert [record.name for record in load(mine=mine).records] == ["a"]


@hookimpl
def rl_plugin():
    return ()


@hookimpl
def rl_step_done(step):
    pass


@hookimpl
def rl_step_started(step, batch):
    pass


def rl_plugins():
    return ()


@hookimpl
def rl_step_finished(metrics):
    pass


@pytest.mark.parametrize(
    ("functions", "reason"),
    [
        ({"rl_plugin": rl_plugin}, "there is no hook rl_plugin; did you mean rl_plugins?"),
        ({"zzz": hookimpl(lambda: ())}, "there is no hook zzz; the hooks are rl_plugins, rl_step_started, rl_step_f"),
        ({"rl_step_done": rl_step_done, "rl_plugins": giving()}, "there is no hook rl_step_done"),
        ({"rl_plugins": rl_plugins}, "function rl_plugins lacks @hookimpl"),
        ({"rl_plugins": rl_plugins, "rl_step_finished": rl_step_finished}, "function rl_plugins lacks @hookimpl"),
        ({}, "implements no hook"),
        ({"rl_step_started": rl_step_started}, "batch"),
        ({"rl_plugins": giving(reward(), "grpo")}, "rl_plugins returned str 'grpo', which is no record"),
        ({"rl_plugins": giving(reward("a"), reward("a"))}, "it registers reward 'a' twice"),
        ({"rl_plugins": giving(reward("a"), reward("b", aliases=("a",)))}, "it registers reward 'a' twice"),
        ({"rl_plugins": giving(reward("a", aliases=("a",)))}, "it registers reward 'a' twice"),
        ({"rl_plugins": hookimpl(lambda: [reward("no name")])}, "rl_plugins raised PluginError: RewardRecord"),
        ({"rl_plugins": hookimpl(lambda: 1 // 0)}, "rl_plugins raised ZeroDivisionError"),
        ({"rl_plugins": hookimpl(lambda: None)}, "rl_plugins raised TypeError"),
    ],
)
def test_broken_plugins_say_why(functions, reason):
    loaded = load(**functions)
    assert loaded.status.word == "broken"
    assert reason in loaded.status.reason


def test_the_records_of_a_plugin_with_a_misspelt_hook_are_still_known():
    loaded = load(rl_plugins=giving(reward("a")), rl_step_done=rl_step_done)
    assert (loaded.status.word, [record.name for record in loaded.records]) == ("broken", ["a"])


def test_optional_hooks_are_not_misspelt():
    @hookimpl(optionalhook=True)
    def rl_of_another_core():
        pass

    assert load(rl_plugins=giving(reward()), rl_of_another_core=rl_of_another_core).status.is_ok


def test_a_plugin_for_a_newer_core_is_incompatible_and_not_misspelt():
    loaded = load(rl_plugins=giving(reward(hook_api="1.1")), rl_step_done=rl_step_done)
    assert str(loaded.status) == "incompatible: needs hook API 1.1; rl-core provides 1.0"


def test_a_kind_that_core_does_not_know():
    class Poem(RewardRecord):
        kind = "poem"

    loaded = load(rl_plugins=giving(Poem(name="a", target="a:b", summary="A poem.")))
    assert loaded.status == Status("broken", "'a' is of kind 'poem', which this rl-core does not know")


@pytest.mark.parametrize(
    ("hook_api", "fits"), [("1.0", True), ("1.1", False), ("0.9", False), ("2.0", False), ("1.10", False)]
)
def test_hook_api(hook_api, fits):
    assert api_status(reward(hook_api=hook_api)).is_ok is fits


def test_an_older_minor_fits(monkeypatch):
    monkeypatch.setattr("rl_core.plugins.distributions.HOOK_API", (1, 10))
    assert [api_status(reward(hook_api=api)).is_ok for api in ("1.9", "1.10", "1.11", "0.11")] == [1, 1, 0, 0]


def test_imports_are_judged(install):
    install("acme-needy", "import frobnicator")
    loaded = load_distribution("acme-needy", "1.0", "acme_needy")
    assert str(loaded.status) == (
        "broken: 'acme_needy' imports 'frobnicator', which is not installed. Install what provides 'frobnicator'."
    )
    assert isinstance(loaded.cause.__cause__, ModuleNotFoundError)


def test_faults_of_one_plugin_do_not_reach_another():
    load(rl_step_done=rl_step_done)
    assert not hasattr(new_plugin_manager().hook, "rl_step_done")


def test_records_make_a_plugin():
    assert load_distribution("acme", "1.0", "x", RecordsPlugin([reward("a")])).records == (reward("a"),)


def test_canonical_names():
    assert {canonical_name(name) for name in ("rl-Backend_x", " rl.backend--x ", "RL_BACKEND.X")} == {"rl-backend-x"}
