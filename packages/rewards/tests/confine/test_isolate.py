import os

import pytest
from rl_rewards.confine import isolate


def with_map(monkeypatch, tmp_path, text):
    path = tmp_path / "uid_map"
    path.write_text(text)
    real = open
    monkeypatch.setattr(
        "builtins.open", lambda name, *a, **k: real(path if name == "/proc/self/uid_map" else name, *a, **k)
    )
    monkeypatch.setattr(os, "getpid", lambda: 4_000_000)


def test_a_user_id_that_nobody_has(monkeypatch, tmp_path):
    with_map(monkeypatch, tmp_path, "         0          0 4294967295\n")
    assert isolate.unprivileged_uid() == 4294967293 - 4_000_000


def test_within_the_ids_of_a_container(monkeypatch, tmp_path):
    with_map(monkeypatch, tmp_path, "0 1000 1\n1 100000 65536\n")
    assert 32768 <= isolate.unprivileged_uid() <= 65535


def test_a_container_with_one_id_has_none(monkeypatch, tmp_path):
    with_map(monkeypatch, tmp_path, "0 1000 1\n")
    with pytest.raises(OSError, match="one user id"):
        isolate.unprivileged_uid()


def test_what_everybody_can_execute(tmp_path):
    program = tmp_path / "program"
    program.touch()
    assert not isolate.is_public(str(program))
    assert isolate.is_public(os.path.realpath("/bin/sh"))
