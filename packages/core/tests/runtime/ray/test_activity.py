import os
import subprocess
import sys
import threading

import pytest
from rl_core.runtime.ray.activity import Activity, _Tail
from rl_core.single_controller.base.call import Call, invoke
from rl_core.single_controller.base.progress import Progress


def test_a_beat_says_what_runs_and_where():
    activity, inside, leave = Activity(), threading.Event(), threading.Event()

    def work():
        with activity.doing("update_actor", Progress(3, "update")):
            inside.set()
            leave.wait()

    worker = threading.Thread(target=work)
    worker.start()
    inside.wait()
    beat = activity.beat()
    leave.set()
    worker.join()
    assert (beat.call, beat.place) == ("update_actor", "step 3, phase update")
    assert 0 <= beat.since_s < 60
    assert "in work\n    leave.wait()" in beat.stack
    assert activity.beat().call is None


def test_the_stack_of_a_call_begins_with_the_workers_method():
    activity = Activity()

    class Worker:
        def update(self):
            return activity.beat().stack

    with activity.doing("update", None):
        stack = invoke(Worker(), "update", Call(), materialize=True, timeout_s=None)
    assert stack.splitlines()[0].endswith("in update")
    assert stack.splitlines()[1] == "    return activity.beat().stack"


def test_the_outer_call_is_back_after_an_inner_one():
    activity = Activity()
    with activity.doing("outer", None), pytest.raises(ValueError, match="x"), activity.doing("inner", None):
        raise ValueError("x")
    with activity.doing("outer", None):
        with activity.doing("inner", None):
            assert activity.beat().call == "inner"
        assert activity.beat().call == "outer"


def test_a_tail_gives_whole_lines_once_and_at_the_end_everything(tmp_path):
    path = tmp_path / "out"
    path.write_text("of somebody before\n")
    tail = _Tail(str(path))
    with path.open("ab") as file:
        file.write(b"one\ntw")
        file.flush()
        assert tail.new_text(unfinished=False) == "one\n"
        assert tail.new_text(unfinished=False) == ""
        file.write("o ü".encode()[:-1])
        file.flush()
        assert tail.new_text(unfinished=False) == ""
        file.write("ü\nthree".encode()[1:])
        file.flush()
        assert tail.new_text(unfinished=False) == "two ü\n"
        assert tail.new_text(unfinished=True) == "three\n"
        assert tail.offset == path.stat().st_size


def test_what_is_too_much_for_one_beat_follows_with_the_next(tmp_path):
    path = tmp_path / "out"
    path.write_text("")
    tail = _Tail(str(path))
    lines = [f"{number:07d}" for number in range(100_000)]
    path.write_text("\n".join(lines) + "\n")
    parts = [tail.new_text(unfinished=False) for _ in range(5)]
    assert "".join(parts).splitlines() == lines
    assert max(map(len, parts)) <= 256 * 1024
    path.write_text(path.read_text() + "x" * 300_000)
    assert tail.new_text(unfinished=False) == "x" * 256 * 1024


def test_a_process_finds_its_own_output(tmp_path):
    code = (
        "import sys; print('before', flush=True)\n"
        "from rl_core.runtime.ray.activity import Activity\n"
        "activity = Activity()\n"
        "print('out', flush=True); print('err', file=sys.stderr, flush=True)\n"
        "beat = activity.beat()\n"
        "open(sys.argv[1], 'w').write(beat.log + str([name for name, _ in beat.files]))\n"
    )
    paths = [tmp_path / "stdout", tmp_path / "stderr"]
    with paths[0].open("w") as out, paths[1].open("w") as err:
        subprocess.run([sys.executable, "-c", code, tmp_path / "beat"], stdout=out, stderr=err, check=True)
    assert (tmp_path / "beat").read_text() == f"out\nerr\n{[os.path.realpath(path) for path in paths]}"
