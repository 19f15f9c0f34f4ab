from __future__ import annotations

import json

import pytest
from rl_core.cli.main import main
from rl_core.plugins import BackendRecord, ReshardingRecord, RewardRecord, RolloutRecord


def reward(name="acme", target="json:dumps", **fields):
    return RewardRecord(name=name, target=target, summary="A reward.", **fields)


def backend(name, **fields):
    return BackendRecord(name=name, target="json:dumps", summary="A backend.", **fields)


def rollout(name, **fields):
    return RolloutRecord(name=name, target="json:dumps", summary="A rollout.", **fields)


@pytest.fixture
def rl(capsys):
    """rl("plugins", "list") -> (status, lines of stdout, stderr)"""

    def rl(*argv):
        status = main(argv)
        captured = capsys.readouterr()
        return status, captured.out.splitlines(), captured.err

    return rl


def test_list_is_a_table_that_fits(rl):
    status, lines, _ = rl("plugins", "list")
    assert status == 0
    assert lines[0].split() == ["KIND", "NAME", "DISTRIBUTION", "API", "STATUS"]
    assert [line.split()[1] for line in lines if line.split()[:1] == ["advantage"]][:2] == ["gae", "grpo"]
    assert max(map(len, lines)) <= 80


def test_list_shows_every_status_with_the_reason(rl, register, monkeypatch):
    monkeypatch.setenv("RL_BLOCK_PLUGINS", "acme-blocked,acme-absent")
    register("acme-a", reward("twice"), reward("fine"), reward("needy", requires=("acme-gpu>=2",)))
    register("acme-b", reward("twice"), reward("newer", hook_api="2.0"))
    register("acme-broken", reward("x"), reward("x"))
    register("acme-blocked", reward("y"))
    _, lines, _ = rl("plugins", "list", "--kind", "reward")
    text = " ".join(" ".join(lines).split())
    assert "twice acme-a 1.0 1.0 conflict: acme-b 1.0 registers it too" in text
    assert "fine acme-a 1.0 1.0 ok" in text
    assert "needy acme-a 1.0 1.0 incompatible: needs acme-gpu>=2 (found nothing)" in text
    assert "newer acme-b 1.0 2.0 incompatible: needs hook API 2.0; rl-core provides 1.0" in text
    assert "acme-broken 1.0 broken: it registers reward 'x' twice" in text
    assert "acme-blocked 1.0 blocked: RL_BLOCK_PLUGINS names it" in text
    assert "note: RL_BLOCK_PLUGINS names acme-absent" in text
    assert max(map(len, lines[:-1])) <= 80
    assert "advantage" not in text


def test_list_of_a_kind_that_nobody_provides(rl):
    assert rl("plugins", "list", "--kind", "backend")[1][0].startswith("No backend is installed. Known ones: ")
    assert rl("plugins", "list", "--kind", "optimizer")[1][0] == "No optimizer is installed."


def test_the_list_of_one_kind_shows_what_else_its_parts_go_by(rl, register):
    register("acme", reward("games", aliases=("play",), prefixes=("games/",)), reward("plain"))
    text = "\n".join(rl("plugins", "list", "--kind", "reward")[1])
    assert "Other names; * stands for any end:\n  games  play, games/*" in text
    assert "Other names" not in "\n".join(rl("plugins", "list")[1])


def test_list_as_json(rl, register):
    register("acme", reward(aliases=("a",), requires=("pytest",), capabilities=frozenset({"cpu"})), version="1.2")
    _, lines, _ = rl("plugins", "list", "--json", "--kind", "reward")
    listing = json.loads("\n".join(lines))
    assert listing["hook_api"] == "1.0"
    assert listing["plugins"] == [
        {
            "kind": "reward",
            "name": "acme",
            "aliases": ["a"],
            "dist": "acme",
            "version": "1.2",
            "hook_api": "1.0",
            "status": "ok",
            "reason": "",
            "target": "json:dumps",
            "config": None,
            "requires": ["pytest"],
            "capabilities": ["cpu"],
            "summary": "A reward.",
        }
    ]
    states = {row["name"]: row["status"] for row in listing["distributions"]}
    assert (states["acme"], states["rl-core"]) == ("ok", "ok")


@pytest.mark.parametrize("asked", ["acme", "a", "acme-dist"])
def test_check_loads_for_real(rl, register, asked):
    register("acme-dist", reward(aliases=("a",), requires=("pytest>=1",), target="json:loads"))
    status, lines, _ = rl("plugins", "check", asked)
    assert status == 0
    assert lines[0] == "reward 'acme' (acme-dist 1.0), hook API 1.0"
    assert lines[1].startswith("  requires pytest>=1: found pytest ")
    assert lines[1].endswith(", ok")
    assert lines[2:] == ["  target json:loads: ok"]


def test_check_covers_every_kind_and_every_target(rl, register):
    engine = backend("acme", config="json:dumps", config_key="a", mount=("actor",), tokenizer="json:lods")
    register("acme-dist", reward(), engine)
    status, lines, err = rl("plugins", "check", "acme")
    assert status == 2
    assert [line for line in lines if line.startswith("  ")] == [
        "  target json:dumps: ok",
        "  config json:dumps: ok",
        "  tokenizer json:lods: FAILED",
        "  target json:dumps: ok",
    ]
    assert err.splitlines()[0] == "error: 1 of 4 loads failed."
    assert "module 'json' has no 'lods'. Did you mean loads" in err


def test_check_names_unmet_requirements(rl, register):
    register("acme-dist", reward(requires=("acme-gpu>=2",)))
    status, lines, err = rl("plugins", "check", "acme")
    assert status == 2
    assert lines[1:] == ["  requires acme-gpu>=2: found nothing, NOT MET", "  target json:dumps: FAILED"]
    assert "Needs acme-gpu>=2; found nothing." in err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gea", "no plugin and no distribution is named 'gea'.\n  Did you mean: gae"),
        ("zzzzzz", "no plugin and no distribution is named 'zzzzzz'.\n  Not readable, and may have it: "),
        ("vllm", "rollout 'vllm' is not installed.\n  Install it: pip install rl-rollout-vllm"),
    ],
)
def test_check_of_nothing(rl, name, message):
    status, _, err = rl("plugins", "check", name)
    assert status == 2
    assert err.startswith(f"error: {message}")


def test_check_of_a_distribution_without_records(rl, register, monkeypatch):
    monkeypatch.setenv("RL_BLOCK_PLUGINS", "acme")
    register("acme", reward())
    assert rl("plugins", "check", "acme")[2] == "error: acme 1.0 is blocked: RL_BLOCK_PLUGINS names it.\n"


def test_pairings(rl, register):
    register("acme-b", backend("b"), backend("c"))
    register("acme-r", rollout("r"))
    pair = {"name": "fast", "target": "json:dumps", "summary": "A mover.", "backend": "c", "rollout": "r"}
    register("acme-fast", ReshardingRecord(**pair, transport="ipc"))
    status, lines, _ = rl("plugins", "pairings")
    assert status == 0
    rows = [line.split()[:3] for line in lines if not line.startswith(" " * 12)]
    assert rows == [["BACKEND", "ROLLOUT", "RESHARDING"], ["b", "r", "generic"], ["c", "r", "fast"]]
    text = " ".join(" ".join(lines).split())
    assert "b r generic works for any pair, (*, *, generic) of rl-core" in text
    assert "c r fast made for this pair, (c, r, ipc) of acme-fast 1.0" in text
    assert max(map(len, lines)) <= 80


def test_pairings_as_json_with_a_conflict(rl, register):
    register("acme-b", backend("b"))
    register("acme-r", rollout("r"))
    pair = {"target": "json:dumps", "summary": "A mover.", "backend": "b", "rollout": "r"}
    for name in ("p", "q"):
        register(f"acme-{name}", ReshardingRecord(name=name, **pair))
    (row,) = json.loads("\n".join(rl("plugins", "pairings", "--json")[1]))
    assert (row["backend"], row["rollout"], row["resharding"], row["transport"]) == ("b", "r", None, None)
    assert "acme-p 1.0 and acme-q 1.0" in row["reason"]


def test_pairings_without_engines(rl):
    _, lines, _ = rl("plugins", "pairings")
    assert [line.split(".")[0] for line in lines] == ["No backend is installed", "No rollout is installed"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["lst"], "rl plugins does not know 'lst'.\n  Did you mean: list?"),
        (["list", "--kind", "bakend"], "--kind does not know 'bakend'.\n  Did you mean: backend?"),
    ],
)
def test_mistyped_words(rl, argv, message):
    status, _, err = rl("plugins", *argv)
    assert status == 2
    assert err.startswith(f"error: {message}")


def test_usage_errors_of_the_parser_exit_with_2(rl):
    with pytest.raises(SystemExit) as caught:
        rl("plugins")
    assert caught.value.code == 2
