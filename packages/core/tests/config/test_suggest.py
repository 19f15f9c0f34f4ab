from __future__ import annotations

from rl_core.config.schema import core_schema
from rl_core.config.suggest import closest_keys

KNOWN = ["a.optim.lr", "a.optim.lr_warmup_steps", "b.optim.lr", "data.train_files", "trainer.nnodes"]


def test_the_same_section_comes_first():
    assert closest_keys("b.optim.lrr", KNOWN)[0] == "b.optim.lr"


def test_a_path_without_its_beginning_is_found():
    assert closest_keys("optim.lr", KNOWN) == ["a.optim.lr", "b.optim.lr"]


def test_nothing_is_said_when_nothing_is_close():
    assert closest_keys("data.zzz", KNOWN) == []


def test_one_missing_letter_finds_the_key():
    known = list(core_schema().keys)
    missed = []
    for path in known[::7]:
        name = path.rpartition(".")[2]
        if len(name) < 5:
            continue
        wrong = path[:-2] + path[-1]
        if wrong not in known and path not in closest_keys(wrong, known):
            missed.append(path)
    assert missed == []
