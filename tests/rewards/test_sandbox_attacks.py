"""Every attack of the table in `docs/rewards.md`, in the sandbox and, where that is safe, without it."""

from __future__ import annotations

import contextlib

import ordinary_user
import pytest
import sandbox_attacks
from sandbox_attacks import ATTACKS, LIMITS, SECRET, SECRET_NAME, World, confined, outcome, table, unconfined
from source_tree import ROOT

pytestmark = [pytest.mark.heavy, pytest.mark.sandbox]


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setenv(SECRET_NAME, SECRET)
    with contextlib.closing(World()) as world:
        yield world


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.what)
def test_the_sandbox_holds(attack, world):
    result = confined(attack, world)
    assert outcome(result) == attack.outcome, result
    assert "HARM" not in result.stdout
    assert SECRET not in result.stdout + result.stderr
    assert world.harm() == []
    assert result.seconds < LIMITS.wall_s + 3
    assert len(result.stdout) <= LIMITS.output_kb * 1024


@pytest.mark.parametrize("attack", [attack for attack in ATTACKS if attack.is_safe], ids=lambda attack: attack.what)
def test_the_attack_works_without_the_sandbox(attack, world):
    printed = unconfined(attack, world)
    assert "HARM" in printed or world.harm()


def test_the_table_on_the_page():
    rows = table({attack.what: attack.outcome for attack in ATTACKS})
    assert rows in (ROOT / "docs/rewards.md").read_text(), "python tests/support/sandbox_attacks.py prints it"


def test_the_sandbox_holds_for_an_ordinary_user():
    run = ordinary_user.run(f"import runpy; runpy.run_path({sandbox_attacks.__file__!r}, run_name='__main__')")
    assert run.stderr == ""
    assert run.stdout.strip() == table({attack.what: attack.outcome for attack in ATTACKS})
