import datetime
import io
import json
from types import SimpleNamespace

import numpy as np
import torch

from rl_core.trainer.tracking import ConsoleTracker, JsonlTracker, to_json


def strict(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_b98_every_line_parses_strictly():
    value = {
        "loss": float("nan"),
        "kl": float("inf"),
        "n": np.int64(3),
        "t": torch.tensor(0.5),
        "arr": np.array([1, 2]),
        "text": "Zürich 🏔 \ud800\nsecond line",
        "when": datetime.datetime(2026, 1, 2),
        "d": {1: "a"},
        "flag": np.bool_(True),
    }
    line = to_json(value)

    assert "\n" not in line
    assert strict(line) == {
        "loss": None,
        "kl": None,
        "n": 3,
        "t": 0.5,
        "arr": [1, 2],
        "text": "Zürich 🏔 \ud800\nsecond line",
        "when": "2026-01-02 00:00:00",
        "d": {"1": "a"},
        "flag": True,
    }


def test_jsonl_appends_one_object_a_step(tmp_path):
    config = SimpleNamespace(trainer=SimpleNamespace(default_local_dir=str(tmp_path / "run")))
    for step in (1, 2):
        tracker = JsonlTracker(config)
        tracker.log(step, {"critic/score/mean": 0.5 * step})
        tracker.close()

    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [strict(line) for line in lines] == [
        {"step": 1, "critic/score/mean": 0.5},
        {"step": 2, "critic/score/mean": 1.0},
    ]


def test_console_prints_what_is_watched():
    stream = io.StringIO()
    tracker = ConsoleTracker(None, stream)
    tracker.log(3, {"critic/score/mean": 0.25, "actor/grad_norm": 1.5, "unwatched": 7, "val-core/x/acc/mean@1": 0.125})
    assert stream.getvalue() == "step 3: reward 0.25  grad 1.5  val-core/x/acc/mean@1 0.125\n"
