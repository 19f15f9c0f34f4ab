import io

import pytest
from rl_demo.progress import ACCURACY, DemoTracker

STEP = {
    "training/total_steps": 60.0,
    "critic/score/mean": 0.504,
    "reward_extra/shows_work/mean": 0.2,
    "timing_s/step": 0.5,
}


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("total", "lines"), [(60, 11), (7, 7), (1, 1)])
def test_some_ten_lines_without_a_terminal(total, lines):
    stream = io.StringIO()
    tracker = DemoTracker(None, stream)
    for step in range(1, total + 1):
        tracker.log(step, STEP | {"training/total_steps": float(total)})
    tracker.close()
    text = stream.getvalue().splitlines()
    assert len(text) == lines
    assert text[-1] == f"     step {total} of {total}   reward 0.50   show their work 20%   0.50 s a step"


def test_validations_are_said():
    stream = io.StringIO()
    DemoTracker(None, stream).log(0, {ACCURACY: 0.457})
    assert stream.getvalue() == "     step 0: 45.7% of the held-out problems right\n"


def test_one_bar_in_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    tracker = DemoTracker(None, stream)
    for step in range(1, 61):
        tracker.log(step, STEP)
    tracker.close()
    assert "60/60" in stream.getvalue()
    assert "reward 0.50" in stream.getvalue()
