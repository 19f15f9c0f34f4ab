"""The code verifier in the processes of a reward manager: settings arrive, and a call that is killed leaves nothing."""

from __future__ import annotations

import json
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rl_core.config.reward import SandboxConfig
from rl_core.plugins import Registry
from rl_core.plugins.selection import Selection
from rl_core.scoring.manager import NaiveRewardManager
from rl_core.trainer.ppo.reward import load_reward_function
from rl_dataproto import DataProto, jagged_from_rows

pytestmark = [pytest.mark.heavy, pytest.mark.sandbox]

TRUTH = json.dumps({"inputs": ["2\n", "3\n"], "outputs": ["4\n", "6\n"]})
PROGRAMS = {
    1: "print(2 * int(input()))",
    2: "print(4)",
    3: "import time; time.sleep(600)  # still-in-the-sandbox",
    4: "x = bytearray(400 << 20); print(2 * int(input()))",
}


class Programs:
    """A tokenizer of whole programs."""

    def decode(self, ids, skip_special_tokens=True):
        return f"```python\n{PROGRAMS[ids[0]]}\n```"


def column(values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def rewards(programs, timeout=60.0, reward_kwargs=None, **sandbox):
    settings = SimpleNamespace(
        timeout=timeout,
        num_workers=2,
        memory_limit_mb=4096,
        max_concurrent=None,
        sandbox_fusion=SandboxConfig(**sandbox),
    )
    config = SimpleNamespace(
        reward_model=settings,
        custom_reward_function=SimpleNamespace(path=None, name="compute_score", reward_kwargs=reward_kwargs or {}),
        trainer=SimpleNamespace(max_failed_reward_fraction=1.0),
    )
    registry = Registry(Selection())
    registry.load_entry_points()
    manager = NaiveRewardManager(load_reward_function(config, registry), Programs(), config)
    count = len(programs)
    batch = DataProto.from_dict(
        tensors={
            "prompts": jagged_from_rows([torch.tensor([1])] * count),
            "responses": jagged_from_rows([torch.tensor([number]) for number in programs]),
        },
        non_tensors={
            "data_source": column(["apps"] * count),
            "reward_model": column([{"ground_truth": TRUTH}] * count),
            "uid": column([str(number) for number in programs]),
        },
    )
    try:
        return manager.collect(batch)
    finally:
        manager.close()


def test_scores_and_their_details():
    right, wrong = rewards([1, 2])
    assert (right.score, right.extra["tests_passed"], right.extra["tests_total"]) == (1.0, 2, 2)
    assert (wrong.score, wrong.extra["tests"]) == (0.0, ["passed", "wrong"])


def test_arguments_of_the_verifier_come_from_the_configuration():
    (half,) = rewards([2], reward_kwargs={"continuous": True})
    assert half.score == 0.5


def test_the_memory_limit_of_the_configuration_holds():
    (little,) = rewards([4], memory_limit_mb=300)
    (enough,) = rewards([4], memory_limit_mb=800)
    assert (little.score, little.extra["tests"]) == (0.0, ["memory"])
    assert enough.score == 1.0


def test_a_call_that_the_pool_kills_takes_its_sandbox_along():
    slow, right = rewards([3, 1], timeout=4.0)
    assert slow.score is None
    assert right.score == 1.0
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "/box/main.py" not in processes


def test_a_service_that_is_not_there_is_a_missing_reward():
    (result,) = rewards([1], timeout=4.0, url="http://127.0.0.1:9")
    assert result.score is None
