from __future__ import annotations

import pytest
from rl_core.plugins import Registry, Selection, get_registry
from rl_core.plugins.discovery import find_candidates, load_candidates

GOOD = """
    from rl_core import hookimpl
    from rl_core.plugins import RewardRecord

    @hookimpl
    def rl_plugins():
        return [RewardRecord(name="{name}", target="json:dumps", summary="A reward.")]
"""


def statuses(selection=None):
    found = load_candidates(find_candidates(), selection or Selection())
    return {each.name: each.status for each in found if each.name.startswith("acme")}


def test_a_plugin_is_found_by_its_entry_point(install):
    install("acme-Good", GOOD.format(name="a"), version="1.2", module="acme_good.plugin")
    (candidate,) = [each for each in find_candidates() if each.name == "acme-Good"]
    assert (candidate.target, str(candidate)) == ("acme_good.plugin", "acme-Good 1.2")
    assert statuses()["acme-Good"].is_ok


def test_core_comes_through_the_same_door():
    (core,) = [each for each in find_candidates() if each.name == "rl-core"]
    assert core.target == "rl_core.builtins"


def test_one_failure_keeps_no_other_from_loading(install):
    install("acme-a", "import frobnicator")
    install("acme-b", GOOD.format(name="b"))
    install("acme-c", "raise RuntimeError('on import')")
    words = {name: status.word for name, status in statuses().items()}
    assert words == {"acme-a": "broken", "acme-b": "ok", "acme-c": "broken"}
    assert "RuntimeError: on import" in str(statuses()["acme-c"])


def test_one_entry_point_name_for_two_distributions_hides_neither(install):
    install("acme-a", GOOD.format(name="a"))
    install("acme-b", GOOD.format(name="b"), entry_points={"acme-a": "acme_b"})
    found = statuses()
    assert found["acme-a"].is_ok
    assert str(found["acme-b"]) == (
        "broken: its entry point is named 'acme-a', as is that of acme-a 1.0; it must have the distribution's own name"
    )


def test_two_distributions_with_one_foreign_entry_point_name(install):
    for name in ("acme-a", "acme-b"):
        install(name, GOOD.format(name=name), entry_points={"shared": name.replace("-", "_")})
    found = statuses()
    assert "as is that of acme-b 1.0" in found["acme-a"].reason
    assert "as is that of acme-a 1.0" in found["acme-b"].reason


def test_a_foreign_entry_point_name_is_broken_even_when_unique(install):
    install("acme-a", GOOD.format(name="a"), entry_points={"other": "acme_a"})
    assert statuses()["acme-a"].reason == "its entry point is named 'other'; it must have the distribution's own name"


def test_two_entry_points_of_one_distribution(install):
    install("acme-a", GOOD.format(name="a"), entry_points={"acme-a": "acme_a", "acme-a-too": "acme_a"})
    assert "it has 2 entry points (acme-a, acme-a-too); one is enough" in statuses()["acme-a"].reason


@pytest.mark.parametrize(
    ("environ", "variable"),
    [
        ({"RL_PLUGINS": ""}, "RL_PLUGINS does not name it"),
        ({"RL_BLOCK_PLUGINS": "acme_a"}, "RL_BLOCK_PLUGINS names it"),
    ],
)
def test_what_is_blocked_is_not_imported(install, environ, variable):
    install("acme-a", "raise SystemExit('imported')")
    assert str(statuses(Selection.from_environment(environ))["acme-a"]) == f"blocked: {variable}"


def test_blocking_one_of_two_does_not_need_its_module(install):
    install("acme-a", GOOD.format(name="same"))
    install("acme-b", GOOD.format(name="same"))
    registry = Registry(Selection(blocked=frozenset({"acme-b"})))
    registry.load_entry_points()
    assert registry.load("reward", "same")([1]) == "[1]"


def test_a_plugin_that_asks_for_the_registry_while_it_is_loaded(install):
    install("acme-a", "from rl_core.plugins import get_registry\nget_registry()")
    (found,) = [each for each in get_registry().distributions if each.name == "acme-a"]
    assert "a plugin module may only declare records" in found.status.reason
