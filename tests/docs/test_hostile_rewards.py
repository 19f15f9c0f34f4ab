"""docs/rewards.md shows what comes of hostile reward functions; here they run, and the table must say what came."""

from __future__ import annotations

import re
import time
from types import SimpleNamespace

import pytest
from rl_core.scoring import guard
from rl_core.scoring.manager import NaiveRewardManager
from rl_testing.contracts.reward_manager import rows
from rl_testing.fakes.tokenizer import TinyTokenizer
from source_tree import ROOT

pytestmark = pytest.mark.heavy

DEADLINE_S = 3.0
MEMORY_MB = 512
PAGE = ROOT / "docs/rewards.md"
DEADLINE, MEMORY, ITSELF = "`reward_model.timeout`", "`reward_model.memory_limit_mb`", "the process is its own"

# Attack -> what limits it. Each is a function below.
LIMITS = {
    "a response of 1 MB": "nothing to limit",
    "a result of 8 MB": "4 MiB a result",
    "catastrophic regular expression": DEADLINE,
    "`10**10**10`": DEADLINE,
    "endless loop": DEADLINE,
    "sleeping, with SIGTERM ignored": DEADLINE,
    "endless loop in a child with a session of its own": DEADLINE,
    "fork bomb": "64 processes",
    "memory, 8 GiB": MEMORY,
    "printing for ever": "1 MiB a call",
    "`sys.exit()`": ITSELF,
    "`raise KeyboardInterrupt`": ITSELF,
    "`os._exit(3)`": ITSELF,
    "reading address 0": ITSELF,
    "closing every file descriptor": ITSELF,
    "endless recursion": ITSELF,
    "returning None": "a score is a finite number",
    "returning NaN": "a score is a finite number",
    "returning `10**400`": "a score is a finite number",
}


def hostile():
    """The function; made here, so that it travels by value and another process need not find this file."""

    def attack(ground_truth, response_ids):
        import ctypes
        import math
        import os
        import re
        import signal
        import subprocess
        import sys
        import time

        def loop():
            while True:
                pass

        def ignore():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)

        def child():
            subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
            loop()

        def bomb():
            while True:
                if os.fork() == 0:
                    time.sleep(600)

        def shout():
            while True:
                print("x" * 1000)

        def interrupt():
            raise KeyboardInterrupt

        def recurse():
            return recurse()

        attacks = {
            "a response of 1 MB": lambda: float(len("x" * (1 << 20)) == 1 << 20),
            "a result of 8 MB": lambda: {"score": 1.0, "text": "x" * (8 << 20)},
            "catastrophic regular expression": lambda: re.match(r"(a+)+$", "a" * 60 + "b"),
            "`10**10**10`": lambda: 10**10**10 % 7,
            "endless loop": loop,
            "sleeping, with SIGTERM ignored": ignore,
            "endless loop in a child with a session of its own": child,
            "fork bomb": bomb,
            "memory, 8 GiB": lambda: float(len(bytearray(8 << 30))),
            "printing for ever": shout,
            "`sys.exit()`": lambda: sys.exit(1),
            "`raise KeyboardInterrupt`": interrupt,
            "`os._exit(3)`": lambda: os._exit(3),
            "reading address 0": lambda: ctypes.string_at(0),
            "closing every file descriptor": lambda: os.closerange(0, 1024),
            "endless recursion": recurse,
            "returning None": lambda: None,
            "returning NaN": lambda: math.nan,
            "returning `10**400`": lambda: 10**400,
        }
        return attacks.get(ground_truth, lambda: 1.0)()

    return attack


@pytest.fixture(scope="module")
def outcome():
    """Every attack between two honest rows, in one batch: results by attack, the honest ones, seconds."""
    batch = rows(["honest"] * (2 * len(LIMITS) + 1))
    for row, name in enumerate(LIMITS):
        batch.non_tensor_batch["reward_model"][2 * row + 1] = {"ground_truth": name}
    settings = SimpleNamespace(timeout=DEADLINE_S, num_workers=2, memory_limit_mb=MEMORY_MB, max_concurrent=None)
    config = SimpleNamespace(reward_model=settings, trainer=SimpleNamespace(max_failed_reward_fraction=1.0))
    manager = NaiveRewardManager(hostile(), TinyTokenizer(), config)
    started = time.monotonic()
    try:
        results = manager.collect(batch)
    finally:
        manager.close()
    left = list(guard.marked(manager._pool._name))
    return dict(zip(LIMITS, results[1::2], strict=True)), results[::2], time.monotonic() - started, left


def table(results):
    lines = ["| attack | limit | outcome |", "|---|---|---|"]
    for name, limit in LIMITS.items():
        result = results[name]
        came = f"scored {result.score:g}" if result.failure is None else f"missing, `reward/{result.failure}`"
        lines.append(f"| {name} | {limit} | {came} |")
    return "\n".join(lines)


def test_the_table_of_the_page_is_what_came(outcome):
    section = PAGE.read_text(encoding="utf-8").partition("## Hostile reward functions")[2].partition("\n## ")[0]
    shown = "\n".join(re.findall(r"^\|.*\|$", section, re.MULTILINE))
    reasons = {name: result.error for name, result in outcome[0].items()}
    assert shown == table(outcome[0]), f"the page should have:\n{table(outcome[0])}\nbecause of {reasons}"


def test_every_missing_reward_says_why(outcome):
    assert all(result.error for result in outcome[0].values() if result.score is None)
    assert "exit status 3" in outcome[0]["`os._exit(3)`"].error


def test_honest_rows_keep_their_scores(outcome):
    assert [result.score for result in outcome[1]] == [1.0] * (len(LIMITS) + 1)


def test_it_ends_in_bounded_time_and_leaves_nothing(outcome):
    # A deadline each, and on a busy machine some seconds for a new process.
    assert outcome[2] < len(LIMITS) * (DEADLINE_S + 4)
    assert outcome[3] == []
