from __future__ import annotations

import sys
import threading
import types

import pytest
from rl_core import hookimpl
from rl_core.errors import (
    PluginApiError,
    PluginBlockedError,
    PluginConflictError,
    PluginLoadError,
    PluginNotFoundError,
)
from rl_core.plugins import (
    BackendRecord,
    KLEstimatorRecord,
    PolicyLossRecord,
    Registry,
    RewardRecord,
    Selection,
    get_registry,
)
from rl_core.plugins import reset_registry as reset


def reward(name="acme", target="json:dumps", **fields):
    return RewardRecord(name=name, target=target, summary="A reward.", **fields)


def test_load_resolves_the_target(registry):
    registry.register_distribution("acme", "1.0", [reward()])
    assert registry.load("reward", "acme")([1]) == "[1]"
    assert registry.record("reward", "acme") == reward()


def test_aliases_reach_the_same_record(registry):
    record = KLEstimatorRecord(name="k1", target="json:dumps", summary="A KL.", aliases=("kl", "plain"))
    registry.register_distribution("acme", "1.0", [record])
    assert registry.record("kl_estimator", "plain") is registry.record("kl_estimator", "k1")
    assert registry.names("kl_estimator") == ("k1",)
    assert registry.records("kl_estimator") == (record,)


def test_asking_for_a_record_imports_nothing(registry):
    registry.register_distribution("acme", "1.0", [reward(target="this:s")])
    registry.record("reward", "acme")
    assert "this" not in sys.modules


def test_unknown_kinds_are_refused_everywhere(registry):
    for ask in (registry.names, registry.records, lambda kind: registry.load(kind, "x")):
        with pytest.raises(PluginNotFoundError, match=r"there is no kind of plugin 'rewards'. Did you mean 'reward'"):
            ask("rewards")


def test_requirements_are_compared_before_the_import(registry):
    heavy = reward(target="acme_heavy_engine:f", requires=("pytest>=1", "acme-gpu>=1.2 | acme-cpu>=1.1"))
    registry.register_distribution("acme", "1.0", [heavy])
    with pytest.raises(PluginApiError) as caught:
        registry.load("reward", "acme")
    assert str(caught.value).splitlines() == [
        "reward 'acme' (acme 1.0) cannot run here, what it is built on is absent or out of range.",
        "  Needs acme-gpu>=1.2 | acme-cpu>=1.1; found nothing.",
        "  Install one: pip install 'acme-gpu>=1.2' or pip install 'acme-cpu>=1.1'",
    ]
    entry = registry.entry("reward", "acme")
    assert str(registry.status(entry)) == "incompatible: needs acme-gpu>=1.2 | acme-cpu>=1.1 (found nothing)"
    assert registry.names("reward") == ("acme",)
    assert [result.satisfied for result in registry.requirements(heavy)] == [True, False]


def test_a_target_that_fails_chains_the_cause(registry, install):
    install("acme-code", "1 / 0", entry_points={})
    registry.register_distribution("acme", "1.0", [reward(target="acme_code:f")])
    with pytest.raises(
        PluginLoadError, match=r"reward 'acme' \(acme 1.0\) does not load: .*ZeroDivisionError"
    ) as caught:
        registry.load("reward", "acme")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_the_five_ways_to_be_unusable(registry):
    registry = Registry(Selection(blocked=frozenset({"acme-blocked"})))
    registry.register_distribution("acme-blocked", "1.0", [reward("blocked")])
    registry.register_distribution("one", "1.0", [reward("twice")])
    registry.register_distribution("two", "1.0", [reward("twice")])
    registry.register_distribution("newer", "1.0", [reward("newer", hook_api="3.0")])
    registry.register_distribution("broken", "1.0", [reward("broken"), reward("broken")])
    expected = {
        "blocked": PluginBlockedError,
        "twice": PluginConflictError,
        "newer": PluginApiError,
        "broken": PluginLoadError,
        "absent": PluginNotFoundError,
    }
    for name, error in expected.items():
        for ask in (registry.record, registry.load, registry.load_config):
            with pytest.raises(error):
                ask("reward", name)
    assert registry.names("reward") == ()


def test_config_and_tokenizer(registry, install):
    install("acme-config", "class Config: ...\ndef tokenizer(path): return path.upper()", entry_points={})
    mounted = {"config": "acme_config:Config", "config_key": "acme", "mount": ("actor",)}
    backend = {"target": "no:E", "summary": "A backend."}
    full = BackendRecord(name="full", tokenizer="acme_config:tokenizer", **mounted, **backend)
    registry.register_distribution("acme", "1.0", [full, BackendRecord(name="bare", **backend)])
    assert registry.load_config("backend", "full").__name__ == "Config"
    assert registry.load_tokenizer("full")("path") == "PATH"
    assert registry.load_config("backend", "bare") is None
    assert registry.load_tokenizer("bare") is None


def test_what_a_policy_loss_prepares(registry):
    loss = {"target": "no:f", "summary": "A loss."}
    losses = [
        PolicyLossRecord(name="ranks", prepare="json:dumps", **loss),
        PolicyLossRecord(name="alone", **loss),
        PolicyLossRecord(name="heavy", prepare="json:dumps", requires=("acme-gpu",), **loss),
    ]
    registry.register_distribution("acme", "1.0", losses)
    assert registry.load_prepare("ranks")([1]) == "[1]"
    assert registry.load_prepare("alone") is None
    with pytest.raises(PluginApiError, match="Needs acme-gpu; found nothing"):
        registry.load_prepare("heavy")


def test_the_configuration_needs_no_engine_but_the_tokenizer_does(registry):
    record = BackendRecord(
        name="acme",
        target="no:E",
        summary="A backend.",
        requires=("acme-gpu",),
        config="json:JSONEncoder",
        config_key="acme",
        mount=("actor",),
        tokenizer="json:dumps",
    )
    registry.register_distribution("acme", "1.0", [record])
    assert registry.load_config("backend", "acme").__name__ == "JSONEncoder"
    with pytest.raises(PluginApiError, match="Needs acme-gpu; found nothing"):
        registry.load_tokenizer("acme")


def test_registering_again_changes_nothing(registry):
    first = registry.register_distribution("acme", "1.0", [reward()])
    assert registry.register_distribution("ACME", "1.0", [reward()]) is first
    assert len(registry.distributions) == 1


@pytest.mark.parametrize(("version", "records"), [("1.1", [reward()]), ("1.0", [reward("other")])])
def test_registering_something_else_under_the_name_is_a_conflict(registry, version, records):
    registry.register_distribution("acme", "1.0", [reward()])
    with pytest.raises(PluginConflictError, match=r"acme 1.0 is registered already"):
        registry.register_distribution("acme", version, records)


def test_registering_a_module(registry):
    module = types.ModuleType("acme_plugin")
    module.rl_plugins = hookimpl(lambda: [reward()])
    registered = registry.register_distribution("acme", "1.0", module)
    assert (registered.module, registered.status.word) == ("acme_plugin", "ok")
    again = registry.register_distribution("bcme", "1.0", module)
    assert "its plugin module acme_plugin is registered by acme already" in again.status.reason


def test_broken_plugins_observe_nothing(registry):
    seen = []

    class Plugin:
        @hookimpl
        def rl_step_started(self, step):
            seen.append(step)

        @hookimpl
        def rl_step_begun(self, step):
            seen.append(-step)

    assert registry.register_distribution("acme", "1.0", Plugin()).status.word == "broken"
    registry.hook.rl_step_started(step=1)
    assert seen == []


def test_explicit_registration_is_not_subject_to_the_list_of_allowed(monkeypatch):
    monkeypatch.setenv("RL_PLUGINS", "")
    registry = get_registry()
    assert [each.name for each in registry.distributions if each.status.is_ok] == ["rl-core"]
    registry.register_distribution("acme", "1.0", [reward()])
    assert registry.names("reward") == ("acme",)


def test_get_registry_is_one_object_until_it_is_reset():
    first = get_registry()
    assert get_registry() is first
    reset()
    second = get_registry()
    assert second is not first
    assert second.plugin_table() == first.plugin_table()


def test_loading_again_changes_nothing():
    registry = get_registry()
    before = registry.distributions
    registry.load_entry_points()
    assert registry.distributions == before


def test_threads_get_one_registry_and_lose_no_registration():
    registries, barrier = [], threading.Barrier(8)

    def work(number):
        barrier.wait(timeout=10)
        registry = get_registry()
        registry.register_distribution(f"acme-{number}", "1.0", [reward(f"acme-{number}")])
        registries.append(registry)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len({id(registry) for registry in registries}) == 1
    assert {f"acme-{number}" for number in range(8)} <= set(registries[0].names("reward"))


def test_without_cores_own_entry_point_there_is_no_registry(monkeypatch):
    monkeypatch.setattr("rl_core.plugins.registry.find_candidates", tuple)
    with pytest.raises(PluginLoadError, match="rl-core is imported but not installed"):
        get_registry()
    monkeypatch.undo()
    assert "gae" in get_registry().names("advantage")


def test_notes_name_what_is_selected_and_absent(monkeypatch):
    monkeypatch.setenv("RL_BLOCK_PLUGINS", "rl-absent")
    (note,) = get_registry().notes()
    assert note == "RL_BLOCK_PLUGINS names rl-absent, but no installed distribution of that name has plugins."
