from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rl_core.contracts.reward import RewardResult
from rl_core.contracts.sampler import BatchSource, PromptGroup
from rl_core.errors import DataError, FilteredGroupsError, MissingRewardError
from rl_core.metrics import Metric
from rl_core.trainer.ppo.sampler_filter import FilterGroups, Verdict, judge, metric_value
from rl_core.trainer.ppo.step import METRICS_KEY
from rl_dataproto import DataProto, jagged_from_rows, object_array
from rl_dataproto.jagged import lengths


class Source(BatchSource):
    """Gives batches of groups; a group is the list of its rewards, None where one is missing."""

    def __init__(self, *batches):
        self.batches, self.position, self.groups = batches, 0, []

    def next(self):
        if self.position == len(self.batches):
            raise StopIteration
        named = {f"{self.position}{number}": group for number, group in enumerate(self.batches[self.position])}
        self.position += 1
        self.groups = [PromptGroup(uid=uid, size=len(group)) for uid, group in named.items()]
        rows = [(uid, reward) for uid, group in named.items() for reward in group]
        return DataProto.from_dict(
            tensors={"responses": jagged_from_rows([torch.tensor([7])] * len(rows))},
            non_tensors={
                "uid": object_array([uid for uid, _ in rows]),
                "wanted": object_array([reward for _, reward in rows]),
            },
            meta_info={METRICS_KEY: {"rollout/failed": Metric(1, "sum")}},
        )

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


class Scorer:
    """Gives each row the reward it brought along, and counts how many it has scored."""

    def __init__(self):
        self.num_rows = 0

    def __call__(self, batch):
        self.num_rows += len(batch)
        return [
            RewardResult(None, error="lost") if reward is None else RewardResult(reward, {"acc": reward > 0.5})
            for reward in batch.non_tensor_batch["wanted"]
        ]


def filtered(*batches, wanted=2, metric="reward", most=0, limit=0.9, scorer=None):
    config = SimpleNamespace(
        data=SimpleNamespace(train_batch_size=wanted),
        algorithm=SimpleNamespace(filter_groups=SimpleNamespace(metric=metric, max_num_gen_batches=most)),
        trainer=SimpleNamespace(max_failed_reward_fraction=limit),
    )
    return FilterGroups(Source(*batches), config, scorer or Scorer())


def uids(batch):
    return list(dict.fromkeys(batch.non_tensor_batch["uid"].tolist()))


def counts(batch):
    start = "training/filter_groups/"
    metrics = batch.meta_info[METRICS_KEY]
    return {name.removeprefix(start): metric.value for name, metric in metrics.items() if name.startswith(start)}


def test_it_draws_until_there_are_enough_groups_that_differ():
    scorer = Scorer()
    source = filtered([[0, 0], [0, 1]], [[1, 1], [0.5, 0.5]], [[1, 0], [0, 1]], scorer=scorer)
    batch = source.next()

    assert uids(batch) == ["01", "20"]
    assert [result.score for result in batch.non_tensor_batch["reward_result"]] == [0, 1, 1, 0]
    assert scorer.num_rows == 12
    assert lengths(batch.batch["responses"]).tolist() == [1] * 4
    assert counts(batch) == {
        "kept": 2,
        "dropped_all_equal": 3,
        "dropped_all_0": 1,
        "dropped_all_1": 1,
        "dropped_single": 0,
        "dropped_no_reward": 0,
        "dropped_missing_rewards": 0,
        "discarded_surplus_groups": 1,
        "discarded_surplus_samples": 2,
        "num_gen_batches": 3,
    }
    # What the generations reported is added up, and every prompt they had in hand is told.
    assert batch.meta_info[METRICS_KEY]["rollout/failed"].value == 3
    assert [group.uid for group in source.groups] == ["00", "01", "10", "11", "20", "21"]


def test_a_group_is_judged_by_the_rewards_that_came():
    batch = filtered([[None, 0, 1], [None, 1, 1], [None, 1], [None, None], [1], [0, 1]]).next()
    assert uids(batch) == ["00", "05"]
    # The missing reward of a group that trains stays in the batch, where the reward line counts it.
    assert [result.score for result in batch.non_tensor_batch["reward_result"]] == [None, 0, 1, 0, 1]
    found = counts(batch)
    named = ("dropped_all_equal", "dropped_single", "dropped_no_reward", "dropped_missing_rewards")
    assert [found[name] for name in named] == [1, 2, 1, 4]


def test_rewards_may_differ_where_the_metric_does_not():
    batch = filtered([[0.1, 0.2], [0.6, 0.7], [0.1, 0.9]], wanted=1, metric="acc").next()
    assert uids(batch) == ["02"]
    assert counts(batch)["dropped_all_0"] == counts(batch)["dropped_all_1"] == 1


@pytest.mark.parametrize("metric", ["reward", "score", "seq_reward", "seq_final_reward"])
def test_names_of_the_reward_itself(metric):
    assert metric_value(RewardResult(0.25, {"reward": 7, "score": 7}), metric) == 0.25


@pytest.mark.parametrize(
    ("extra", "value"), [({"acc": True}, 1.0), ({"acc": np.float32(0.5)}, 0.5), ({"acc": float("nan")}, None)]
)
def test_values_that_the_reward_function_returns(extra, value):
    assert metric_value(RewardResult(0.0, extra), "acc") == value


@pytest.mark.parametrize("extra", [{"f1": 1.0}, {"f1": 1.0, "acc": "high"}, {"f1": 1.0, "acc": None}])
def test_a_reward_without_the_value_is_refused_and_says_what_it_has(extra):
    with pytest.raises(DataError, match=r"filter_groups\.metric is 'acc'.*It has: reward, .*f1"):
        metric_value(RewardResult(0.0, extra), "acc")


def test_a_missing_reward_has_no_value_whatever_came_with_it():
    assert metric_value(RewardResult(None, {"acc": 1.0}), "acc") is None


def test_verdicts():
    assert judge([]) is Verdict.NO_REWARD
    assert judge([0.3]) is Verdict.SINGLE
    # Equal numbers whose mean rounds to another one are equal.
    assert judge([0.1, 0.1, 0.1]) is Verdict.ALL_EQUAL
    assert judge([0.1, 0.1, 0.1 + 1e-15]) is Verdict.KEPT


def test_too_many_generations_stop_the_run_and_say_which_groups_there_were():
    source = filtered([[0, 0], [0, 0]], [[1, 1], [0, 1]], [[0, 1]], most=2)
    with pytest.raises(FilteredGroupsError) as caught:
        source.next()
    text = str(caught.value)
    assert "2 generations (algorithm.filter_groups.max_num_gen_batches) did not give the 2 groups" in text
    assert "of 4 groups 1 (25%) differ; all equal: 3 (75%), of these all 0: 2 (50%), all 1: 1 (25%)" in text
    assert "data.gen_batch_size" in text
    assert uids(filtered([[0, 0], [0, 0]], [[1, 1], [0, 1]], [[0, 1]], most=3).next()) == ["11", "20"]


def test_data_that_ends_in_the_middle_says_what_there_was():
    source = filtered([[0, 1], [1, 1]])
    with pytest.raises(StopIteration) as caught:
        source.next()
    assert "had 1 of 2 groups: of 2 groups 1 (50%) differ" in caught.value.value


def test_too_many_missing_rewards_stop_the_run():
    with pytest.raises(MissingRewardError, match="1 of 4 rewards are missing"):
        filtered([[None, 1], [0, 1]], limit=0.2).next()


def test_nothing_is_carried_from_step_to_step():
    batches = ([[0, 1], [0, 1], [1, 0]], [[1, 1], [0, 1], [1, 1]], [[0, 1], [0, 1], [1, 1]])
    straight = filtered(*batches)
    straight.next()
    resumed = filtered(*batches)
    resumed.load_state_dict(straight.state_dict())
    mine, wanted = resumed.next(), straight.next()
    assert uids(mine) == uids(wanted) == ["11", "20"]
    assert counts(mine) == counts(wanted)
