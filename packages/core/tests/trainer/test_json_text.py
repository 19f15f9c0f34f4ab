import datetime
import json

import numpy as np
import torch
from rl_core.trainer.json_text import to_json


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
