"""docs/beginner-mistakes.md: its commands print what stands below them, and its keys and numbers exist."""

from __future__ import annotations

import re
import shlex

import pytest
from rl_core.cli.check_command import main
from rl_core.config.schema import core_schema
from rl_core.plugins import reset_registry
from source_tree import ROOT

PAGE = (ROOT / "docs/beginner-mistakes.md").read_text()
SHOWN = re.findall(r"^```bash\n(rl check .*?)^```\n\n```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def _every_plugin(monkeypatch):
    for name in ("RL_PLUGINS", "RL_BLOCK_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    reset_registry()
    yield
    reset_registry()


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[output.splitlines()[0] for _, output in SHOWN])
def test_a_check_prints_what_the_page_shows(command, output, capsys):
    main(shlex.split(command.replace("\\\n", " "))[2:])
    printed = " ".join(capsys.readouterr().out.split())
    assert [line for line in output.splitlines() if line not in printed] == []


def test_every_mistake_has_a_command():
    sections = PAGE.split("\n## ")[1:]
    assert len(sections) == 4
    assert [section.splitlines()[0] for section in sections if "```bash" not in section] == []
    assert len(SHOWN) == 3


def test_keys_exist():
    keys = {
        text.partition("=")[0] for text in re.findall(r"`((?:data|trainer|actor_rollout_ref)\.[\w.]+(?:=\S+)?)`", PAGE)
    }
    known = {key for key in keys if key in core_schema().keys}
    assert len(known) > 5
    # The section of the default training engine, which core does not know.
    assert {key.rpartition(".")[0] for key in keys - known} == {"actor_rollout_ref.actor.fsdp_config"}
