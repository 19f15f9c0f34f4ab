import errno
from pathlib import Path

import pytest
from rl_core.errors import CheckpointError
from rl_core.trainer.checkpoint import POINTER, CheckpointStore, checkpoint_to_resume, require_identity

ME = {"adv_estimator": "grpo"}


def store(tmp_path, keep=None):
    return CheckpointStore(tmp_path, max_to_keep=keep)


def write_good(folder: Path):
    (folder / "actor").mkdir()
    (folder / "actor" / "weights").write_text("w")


def write_nothing(folder):
    raise RuntimeError("worker died")


def write_half(folder):
    write_good(folder)
    raise OSError(errno.ENOSPC, "No space left on device")


def steps(tmp_path):
    return [item.step for item in store(tmp_path).all()]


def test_save_and_read_back(tmp_path):
    saved = store(tmp_path).save(3, write_good, {"sampler": {"step": 3}}, ME)

    found = store(tmp_path).latest()
    assert found == saved
    assert found.trainer_state() == {"sampler": {"step": 3}}
    assert (found.path / "actor" / "weights").read_text() == "w"
    assert (tmp_path / POINTER).read_text() == "3\n"


@pytest.mark.parametrize(("fault", "error"), [(write_nothing, RuntimeError), (write_half, CheckpointError)])
def test_b86_a_failed_save_leaves_the_old_checkpoint(tmp_path, fault, error):
    keep_one = store(tmp_path, keep=1)
    keep_one.save(1, write_good, {}, ME)
    with pytest.raises(error):
        keep_one.save(2, fault, {}, ME)
    assert store(tmp_path).latest().step == 1

    keep_one.save(3, write_good, {}, ME)
    assert steps(tmp_path) == [3]
    assert not (tmp_path / "global_step_1").exists()
    assert not (tmp_path / "global_step_2").exists()


@pytest.mark.parametrize(("keep", "left"), [(2, [1, 3]), (None, [1, 3])])
def test_b86_keeping_more(tmp_path, keep, left):
    keeping = store(tmp_path, keep=keep)
    keeping.save(1, write_good, {}, ME)
    with pytest.raises(CheckpointError):
        keeping.save(2, write_half, {}, ME)
    keeping.save(3, write_good, {}, ME)
    assert steps(tmp_path) == left


def test_a_full_disk_is_reported_with_place_and_room(tmp_path):
    with pytest.raises(CheckpointError, match=r"checkpoint of step 2 .*No space left.*GiB free"):
        store(tmp_path).save(2, write_half, {}, ME)


def test_b90_payload_complete_but_pointer_refused(tmp_path, monkeypatch):
    store(tmp_path).save(60, write_good, {}, ME)

    def refuse(self, target):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", refuse)
        with pytest.raises(CheckpointError, match="Disk quota exceeded"):
            store(tmp_path).save(70, write_good, {}, ME)

    assert (tmp_path / POINTER).read_text() == "60\n"
    assert checkpoint_to_resume(tmp_path, "auto", None).step == 70
    store(tmp_path).save(70, write_good, {}, ME)  # overwriting the complete folder is safe
    assert steps(tmp_path) == [60, 70]


def test_a_half_written_folder_is_never_resumed(tmp_path):
    (tmp_path / "global_step_5" / "actor").mkdir(parents=True)
    assert checkpoint_to_resume(tmp_path, "auto", None) is None


@pytest.mark.parametrize("moment", ["write_text", "replace"])
def test_an_interrupt_while_the_pointer_is_written_leaves_nothing_behind(tmp_path, monkeypatch, moment):
    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if moment == "replace":
            patch.setattr(Path, "replace", interrupt)
        else:
            patch.setattr(CheckpointStore, "_point_to", interrupt)
        with pytest.raises(KeyboardInterrupt):
            store(tmp_path).save(1, write_good, {}, ME)
    assert not list(tmp_path.glob(".*"))
    assert steps(tmp_path) == [1]


def test_leftovers_of_an_interrupted_save_are_cleared(tmp_path):
    store(tmp_path).save(1, write_good, {}, ME)
    (tmp_path / ".global_step_2.partial" / "actor").mkdir(parents=True)
    store(tmp_path).remove_partial()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["global_step_1", POINTER]


def test_resume_modes(tmp_path):
    store(tmp_path).save(1, write_good, {}, ME)
    store(tmp_path).save(2, write_good, {}, ME)

    assert checkpoint_to_resume(tmp_path, "disable", None) is None
    assert checkpoint_to_resume(tmp_path, "resume_path", str(tmp_path / "global_step_1")).step == 1
    with pytest.raises(CheckpointError, match=r"needs trainer\.resume_from_path"):
        checkpoint_to_resume(tmp_path, "resume_path", None)
    with pytest.raises(CheckpointError, match="complete ones beside it: global_step_1, global_step_2"):
        checkpoint_to_resume(tmp_path, "resume_path", str(tmp_path / "global_step_9"))


def test_another_algorithm_is_refused_by_name(tmp_path):
    saved = store(tmp_path).save(1, write_good, {}, ME)
    require_identity(saved, {"adv_estimator": "grpo"})
    with pytest.raises(CheckpointError, match=r"adv_estimator: checkpoint 'grpo', now 'gae'"):
        require_identity(saved, {"adv_estimator": "gae"})
