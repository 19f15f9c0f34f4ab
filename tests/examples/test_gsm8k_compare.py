"""Comparing two evaluations: the gain is the mean over problems, and the interval knows that they are the same ones."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "gsm8k" / "compare.py"


def write(path, passed):
    """``passed``: prompt -> its answers."""
    records = [{"prompt": prompt, "passed": right} for prompt, answers in passed.items() for right in answers]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def compare(*files):
    return subprocess.run([sys.executable, SCRIPT, *files], capture_output=True, text=True, check=False)


def test_a_gain_in_every_problem_has_no_spread(tmp_path):
    before = write(tmp_path / "a", {prompt: [False, False] for prompt in range(50)})
    after = write(tmp_path / "b", {prompt: [True, False] for prompt in range(50)})
    said = compare(before, after).stdout
    assert "0.0%" in said
    assert "gain +50.0%, 95 % interval +50.0% to +50.0%: more than luck" in said


def test_as_many_won_as_lost_may_be_luck(tmp_path):
    before = write(tmp_path / "a", {prompt: [prompt < 20] for prompt in range(40)})
    after = write(tmp_path / "b", {prompt: [prompt >= 20] for prompt in range(40)})
    said = compare(before, after).stdout
    assert "gain +0.0%" in said
    assert "may be luck" in said


def test_the_interval_is_that_of_the_normal_distribution_where_that_holds(tmp_path):
    # 400 problems, 40 won and none lost: mean 0.1, deviation of the mean sqrt(0.1 * 0.9 / 400) = 0.015.
    before = write(tmp_path / "a", {prompt: [False] for prompt in range(400)})
    after = write(tmp_path / "b", {prompt: [prompt < 40] for prompt in range(400)})
    said = compare(before, after).stdout
    low, high = (float(number) for number in re.search(r"interval \+([\d.]+)% to \+([\d.]+)%", said).groups())
    assert low == pytest.approx(10 - 1.96 * 1.5, abs=0.4)
    assert high == pytest.approx(10 + 1.96 * 1.5, abs=0.4)


def test_other_problems_cannot_be_compared(tmp_path):
    done = compare(write(tmp_path / "a", {1: [True]}), write(tmp_path / "b", {2: [True]}))
    assert done.returncode == 2
    assert "not the same ones" in done.stderr


def test_a_file_of_something_else_is_named(tmp_path):
    done = compare(write(tmp_path / "a", {1: [True]}), tmp_path / "missing")
    assert done.returncode == 2
    assert "rl eval --out" in done.stderr
