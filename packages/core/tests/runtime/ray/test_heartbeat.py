import time

from rl_core.runtime.ray.activity import Activity, Beat
from rl_core.runtime.ray.heartbeat import Board, Pulse


class Remote:
    """An actor's handle on an object of this process."""

    def __init__(self, target):
        self.beat = type("Method", (), {"remote": staticmethod(target.beat)})


def test_the_board_keeps_the_newest_beat_and_all_output_until_it_is_read():
    board = Board()
    board.beat("actor/0", Beat("gen", "step 1", 1.0, "", "one\n"))
    board.beat("actor/0", Beat("update", "step 1", 1.0, "", "two\n"))
    signs, logs = board.read()
    assert signs["actor/0"].beat.call == "update"
    assert 0 <= signs["actor/0"].age_s < 60
    assert logs == {"actor/0": "one\ntwo\n"}
    assert board.read()[1] == {}


def test_output_that_nobody_reads_is_bounded_and_says_so():
    board = Board()
    for _ in range(3):
        board.beat("actor/0", Beat(None, "", 0.0, "", "x" * (8 << 20)))
    text = board.read()[1]["actor/0"]
    assert text.startswith(f"[{8 << 20} characters left out]\n")
    assert len(text) < 17 << 20


def test_a_pulse_beats_at_once_and_until_it_is_stopped(monkeypatch):
    monkeypatch.setattr("ray.wait", lambda refs, timeout: (refs, []))  # the board is no actor here
    board = Board()
    pulse = Pulse("actor/0", Remote(board), Activity(), interval_s=0.02)
    pulse.start()
    ends = time.monotonic() + 20.0
    while "actor/0" not in board.read()[0] and time.monotonic() < ends:
        time.sleep(0.01)
    pulse.stop()
    age = board.read()[0]["actor/0"].age_s
    time.sleep(0.1)
    assert board.read()[0]["actor/0"].age_s >= age + 0.1
