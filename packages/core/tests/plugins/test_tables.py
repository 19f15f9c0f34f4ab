from __future__ import annotations

import json

from rl_core.plugins import RewardRecord, ToolRecord, compare_tables


def table(registry, *rows):
    for dist, version, records in rows:
        registry.register_distribution(dist, version, records)
    return registry.plugin_table()


def reward(name):
    return RewardRecord(name=name, target="acme:f", summary="A reward.")


def test_rows_are_plain_and_sorted_and_hold_usable_parts_only(registry):
    tool = ToolRecord(name="a", target="acme:T", summary="A tool.")
    rows = table(
        registry, ("acme", "1.0", [reward("b"), tool, reward("a"), reward("twice")]), ("bcme", "2", [reward("twice")])
    )
    assert json.loads(json.dumps(rows)) == [
        {"name": "a", "dist": "acme", "version": "1.0", "kind": "reward"},
        {"name": "b", "dist": "acme", "version": "1.0", "kind": "reward"},
        {"name": "a", "dist": "acme", "version": "1.0", "kind": "tool"},
    ]


def row(name, dist="acme", version="1.0"):
    return {"name": name, "dist": dist, "version": version, "kind": "reward"}


def test_equal_tables_in_any_order():
    assert compare_tables([row("a"), row("b")], [row("b"), row("a")]) is None
    assert compare_tables([], []) is None


def test_every_difference_is_named():
    driver = [row("a"), row("b"), row("c"), row("same")]
    worker = [row("b", version="1.1"), row("c", dist="bcme"), row("d"), row("same")]
    assert compare_tables(driver, worker).splitlines() == [
        "the plugins of this worker differ from the driver's.",
        "  only on the driver: reward 'a' (acme 1.0)",
        "  reward 'b': acme 1.0 on the driver, acme 1.1 on the worker",
        "  reward 'c': acme 1.0 on the driver, bcme 1.0 on the worker",
        "  only on the worker: reward 'd' (acme 1.0)",
        "  Install the same versions on every node, with the same RL_PLUGINS and RL_BLOCK_PLUGINS.",
    ]
