"""One name for all roles, when the last of them is whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from rl_core.contracts.engine import SaveState
from rl_core.errors import CheckpointError
from rl_core.trainer.checkpoint import POINTER, CheckpointStore
from rl_core.trainer.checkpoint_saver import CheckpointSaver, SavedRole

WRITING, WRITTEN, FAILED = SaveState.WRITING, SaveState.WRITTEN, SaveState.FAILED


class Group:
    """Two ranks, as far along as the test says."""

    def __init__(self, *states):
        self.states = list(states) or [WRITTEN, WRITTEN]
        self.calls = []
        self.folder = None

    def save_checkpoint(self, directory):
        self.calls.append("save")
        self._write(directory)

    def start_checkpoint(self, directory):
        self.calls.append("start")
        self._write(directory)

    def _write(self, directory):
        self.folder = Path(directory)
        self.folder.mkdir()
        (self.folder / "part").write_text("")

    def poll_checkpoint(self):
        return self.states

    def finish_checkpoint(self):
        self.calls.append("finish")
        if FAILED in self.states:
            msg = f"{self.folder}/part: no room"
            raise CheckpointError(msg)


@pytest.fixture
def store(tmp_path):
    return CheckpointStore(tmp_path, max_to_keep=1)


def save(saver, step, *roles):
    saver.save(step, roles, {"global_step": step}, {})


def newest(store):
    found = store.latest()
    return found and found.step


def test_without_a_role_in_the_background_all_is_there_on_return(store):
    group = Group()
    save(CheckpointSaver(store), 1, SavedRole("actor", group))
    assert group.calls == ["save"]
    assert newest(store) == 1


def test_the_name_comes_when_the_last_rank_of_the_last_role_is_whole(store):
    saver = CheckpointSaver(store)
    actor, critic, plain = Group(WRITING, WRITTEN), Group(WRITTEN, WRITING), Group()
    save(saver, 1, SavedRole("actor", actor, True), SavedRole("critic", critic, True), SavedRole("rm", plain))
    assert plain.calls == ["save"]
    for group in (actor, critic):
        saver.poll()
        assert newest(store) is None
        assert not (store.folder / POINTER).exists()
        group.states[:] = [WRITTEN, WRITTEN]
    saver.poll()
    assert newest(store) == 1
    assert (store.folder / POINTER).read_text() == "1\n"
    assert {path.name for path in store.latest().path.iterdir() if path.is_dir()} == {"actor", "critic", "rm"}
    assert actor.calls == critic.calls == ["start", "finish"]


def test_the_next_save_and_the_end_wait(store):
    saver, group = CheckpointSaver(store), Group(WRITING)
    save(saver, 1, SavedRole("actor", group, True))
    save(saver, 2, SavedRole("actor", group, True))
    assert newest(store) == 1
    assert group.calls == ["start", "finish", "start"]
    saver.wait()
    assert newest(store) == 2
    saver.wait()
    assert group.calls[3:] == ["finish"]


def test_the_older_one_stays_until_the_newer_one_is_whole(store):
    saver, group = CheckpointSaver(store), Group(WRITING)
    save(saver, 1, SavedRole("actor", Group()))
    save(saver, 2, SavedRole("actor", group, True))
    assert [item.step for item in store.all()] == [1]
    saver.wait()
    assert [item.step for item in store.all()] == [2]


def test_a_failure_is_raised_by_the_next_poll_and_the_older_one_stands(store):
    saver = CheckpointSaver(store)
    save(saver, 1, SavedRole("actor", Group()))
    save(saver, 2, SavedRole("actor", Group(WRITING, FAILED), True))
    with pytest.raises(CheckpointError, match=r"global_step_2.partial/actor/part: no room"):
        saver.poll()
    assert newest(store) == 1
    assert (store.folder / POINTER).read_text() == "1\n"
    assert not list(store.folder.glob(".global_step*"))
    saver.poll()
