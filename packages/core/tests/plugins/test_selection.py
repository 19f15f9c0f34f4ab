from __future__ import annotations

import pytest
from rl_core.errors import ConfigError
from rl_core.plugins import Selection


@pytest.mark.parametrize(
    ("environ", "let_in"),
    [
        ({}, {"rl-core", "rl-a", "rl-b"}),
        ({"RL_PLUGINS": ""}, {"rl-core"}),
        ({"RL_PLUGINS": " , "}, {"rl-core"}),
        ({"RL_PLUGINS": "rl-a"}, {"rl-core", "rl-a"}),
        ({"RL_PLUGINS": " RL_A ,rl.b"}, {"rl-core", "rl-a", "rl-b"}),
        ({"RL_BLOCK_PLUGINS": ""}, {"rl-core", "rl-a", "rl-b"}),
        ({"RL_BLOCK_PLUGINS": "rl-b"}, {"rl-core", "rl-a"}),
        ({"RL_PLUGINS": "rl-a,rl-b", "RL_BLOCK_PLUGINS": "Rl_b"}, {"rl-core", "rl-a"}),
    ],
)
def test_environment(environ, let_in):
    selection = Selection.from_environment(environ)
    assert {name for name in ("rl-core", "rl-a", "rl-b") if selection.reason_against(name) is None} == let_in


def test_reasons_say_which_variable():
    selection = Selection.from_environment({"RL_PLUGINS": "rl-a", "RL_BLOCK_PLUGINS": "rl-a"})
    assert selection.reason_against("rl-a") == "RL_BLOCK_PLUGINS names it"
    assert selection.reason_against("rl-b") == "RL_PLUGINS does not name it"
    assert selection.reason_against("rl-b", explicit=True) is None
    assert selection.reason_against("rl-a", explicit=True) == "RL_BLOCK_PLUGINS names it"


def test_core_cannot_be_blocked():
    with pytest.raises(ConfigError, match="set RL_PLUGINS to an empty string"):
        Selection.from_environment({"RL_BLOCK_PLUGINS": "rl_core"})


def test_names_that_nobody_has_are_noted():
    selection = Selection.from_environment({"RL_PLUGINS": "rl-a,rl-x", "RL_BLOCK_PLUGINS": "rl-y"})
    notes = selection.unknown(["rl-core", "RL.A"])
    assert [note.split(",")[0] for note in notes] == ["RL_PLUGINS names rl-x", "RL_BLOCK_PLUGINS names rl-y"]
