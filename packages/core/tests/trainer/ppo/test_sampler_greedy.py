import math
from types import SimpleNamespace

import pytest
import torch
from rl_core.contracts.reward import RewardResult
from rl_core.contracts.sampler import BatchSource, PromptGroup
from rl_core.errors import MissingRewardError, MissingRolloutError
from rl_core.metrics import Metric
from rl_core.trainer.ppo.sampler_greedy import GreedyBaseline
from rl_core.trainer.ppo.step import METRICS_KEY
from rl_dataproto import DataProto, jagged_from_rows, object_array


class Source(BatchSource):
    """One batch of the named responses; each is as long as its number in the list."""

    def __init__(self, *names):
        self.names, self.steps = names, 0
        self.groups = [PromptGroup(uid=uid, size=2) for uid in dict.fromkeys(name.rpartition("-")[0] for name in names)]

    def next(self):
        self.steps += 1
        return DataProto.from_dict(
            tensors={"responses": jagged_from_rows([torch.tensor([1] * (row + 1)) for row in range(len(self.names))])},
            non_tensors={
                "request_id": object_array(list(self.names)),
                "uid": object_array([name.rpartition("-")[0] for name in self.names]),
                "sampling": object_array([None] * len(self.names)),
            },
            meta_info={METRICS_KEY: {"rollout/failed": Metric(1, "sum")}},
        )

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


FULL = ("a-0", "a-1", "a-greedy", "b-0", "b-greedy", "c-0", "c-1", "c-greedy")


def greedy(*names, rewards=None, limit=0.5, is_needed=True):
    config = SimpleNamespace(
        trainer=SimpleNamespace(max_failed_rollout_fraction=limit, max_failed_reward_fraction=limit)
    )
    known = {"a": 0.5, "b": -1.0, "c": 3.0} if rewards is None else rewards

    def score(batch):
        assert all(name.endswith("-greedy") for name in batch.non_tensor_batch["request_id"])
        found = [known[uid] for uid in batch.non_tensor_batch["uid"]]
        return [RewardResult(value, error=None if value is not None else "late") for value in found]

    return GreedyBaseline(Source(*names), config, score, is_needed=is_needed)


def values(batch):
    return {name: metric.value for name, metric in batch.meta_info[METRICS_KEY].items()}


def test_greedy_rows_leave_the_batch_and_their_reward_stays():
    source = greedy(*FULL)
    batch = source.next()
    assert batch.non_tensor_batch["request_id"].tolist() == ["a-0", "a-1", "b-0", "c-0", "c-1"]
    assert batch.batch["reward_baselines"].tolist() == [0.5, 0.5, -1.0, 3.0, 3.0]
    assert batch.batch["reward_baselines"].dtype == torch.float64
    assert [len(row) for row in batch.batch["responses"].unbind()] == [1, 2, 4, 6, 7]
    assert "sampling" not in batch.non_tensor_batch
    assert values(batch) == {
        "rollout/failed": 1,
        "rollout/greedy_reward/mean": pytest.approx(2.5 / 3),
        "rollout/greedy_missing": 0,
        "rollout/no_baseline": 0,
    }
    assert [group.uid for group in source.groups] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("names", "rewards"),
    [
        ([name for name in FULL if name != "a-greedy"], None),
        (FULL, {"a": None, "b": -1.0, "c": 3.0}),
    ],
    ids=["no response", "no reward"],
)
def test_rows_without_a_baseline_are_left_out_and_counted(names, rewards):
    batch = greedy(*names, rewards=rewards).next()
    assert batch.non_tensor_batch["request_id"].tolist() == ["b-0", "c-0", "c-1"]
    found = values(batch)
    assert (found["rollout/greedy_missing"], found["rollout/no_baseline"]) == (1, 2)
    assert found["rollout/greedy_reward/mean"] == 1.0


def test_where_nobody_needs_the_baseline_its_rows_stay():
    batch = greedy(*FULL, rewards={"a": None, "b": -1.0, "c": 3.0}, is_needed=False).next()
    assert len(batch) == 5
    assert [math.isnan(value) for value in batch.batch["reward_baselines"].tolist()] == [True] * 2 + [False] * 3
    assert "rollout/no_baseline" not in values(batch)


def test_a_prompt_with_nothing_but_its_greedy_response_trains_nothing():
    batch = greedy("a-greedy", "b-0", "b-greedy").next()
    assert batch.non_tensor_batch["request_id"].tolist() == ["b-0"]
    assert values(batch)["rollout/greedy_reward/mean"] == -0.25


def test_too_many_missing_ones_stop_the_run():
    with pytest.raises(MissingRolloutError, match="2 of 3 greedy responses are missing"):
        greedy("a-0", "b-0", "c-0", "c-greedy").next()
    with pytest.raises(MissingRolloutError, match="1 of 1 greedy responses"):
        greedy("a-0", limit=1.0).next()
    with pytest.raises(MissingRewardError, match="2 of 3 rewards are missing"):
        greedy(*FULL, rewards={"a": None, "b": None, "c": 3.0}).next()


def test_the_state_is_that_of_the_source():
    source = greedy(*FULL)
    source.next()
    assert source.state_dict() == {"steps": 1}
    source.load_state_dict({"steps": 5})
    assert source.state_dict() == {"steps": 5}
