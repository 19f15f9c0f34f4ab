from __future__ import annotations

import pytest
from rl_core.errors import PluginConflictError
from rl_core.plugins import Distribution, RewardRecord, Status, ToolRecord
from rl_core.plugins.lookup import Lookup


def reward(name, **fields):
    return RewardRecord(name=name, target="acme:f", summary="A reward.", **fields)


def distribution(name, *records, **fields):
    return Distribution(name, "1.0", "acme", records=records, **fields)


def test_entries_follow_distribution_and_registration():
    tool = ToolRecord(name="a", target="acme:T", summary="A tool.")
    lookup = Lookup([distribution("b", reward("z"), reward("a")), distribution("a", tool, reward("y"))])
    assert [entry.record.name for entry in lookup.entries()] == ["a", "y", "z", "a"]
    assert [entry.record.name for entry in lookup.entries("reward")] == ["y", "z", "a"]
    assert lookup.require("reward", "a").label == "reward 'a' (b 1.0)"
    assert lookup.require("tool", "a").label == "tool 'a' (a 1.0)"


def test_an_alias_is_a_claim_like_a_name():
    lookup = Lookup([distribution("a", reward("x", aliases=("y",))), distribution("b", reward("y"), reward("z"))])
    words = {entry.record.name: str(lookup.status(entry)) for entry in lookup.entries()}
    assert words == {"x": "conflict: b 1.0 registers it too", "y": "conflict: a 1.0 registers it too", "z": "ok"}
    with pytest.raises(PluginConflictError, match=r"reward name 'y' is registered twice: a 1.0 and b 1.0"):
        lookup.require("reward", "y")
    with pytest.raises(PluginConflictError, match="reward 'x' or one of its aliases is registered twice"):
        lookup.require("reward", "x")
    assert lookup.require("reward", "z").record == reward("z")


def test_a_name_goes_before_a_prefix_and_a_longer_prefix_before_a_shorter():
    lookup = Lookup(
        [
            distribution("a", reward("x", prefixes=("aime", "games/"))),
            distribution("b", reward("y", prefixes=("aime2024",)), reward("aime_own")),
        ]
    )
    found = {
        name: lookup.require("reward", name).record.name for name in ("aime2024_ii", "aime2025", "aime", "aime_own")
    }
    assert found == {"aime2024_ii": "y", "aime2025": "x", "aime": "x", "aime_own": "aime_own"}
    assert lookup.require("reward", "games/chess").record.name == "x"
    assert (
        lookup.named("reward", "game") == lookup.named("reward", "AIME2024") == lookup.named("tool", "aime2024") == ()
    )
    assert all(lookup.status(entry).is_ok for entry in lookup.entries())


def test_the_same_prefix_twice_is_a_conflict():
    lookup = Lookup(
        [distribution("a", reward("x", prefixes=("p/",))), distribution("b", reward("y", prefixes=("p/",)))]
    )
    assert [str(lookup.status(entry)) for entry in lookup.entries()] == [
        "conflict: b 1.0 registers it too",
        "conflict: a 1.0 registers it too",
    ]
    with pytest.raises(PluginConflictError, match=r"reward name 'p/z' is registered twice: a 1.0 and b 1.0"):
        lookup.require("reward", "p/z")


def test_a_broken_claim_still_conflicts():
    broken = distribution("b", reward("x"), status=Status("broken", "of old age"))
    lookup = Lookup([distribution("a", reward("x")), broken])
    with pytest.raises(PluginConflictError):
        lookup.require("reward", "x")


def test_usable():
    lookup = Lookup([distribution("a", reward("x"), reward("y", hook_api="2.0")), distribution("b", reward("z"))])
    assert [entry.record.name for entry in lookup.usable("reward")] == ["x", "z"]
