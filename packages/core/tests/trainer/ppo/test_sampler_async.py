from types import SimpleNamespace

import pytest
import torch
from rl_core.contracts.sampler import FailureKind, GroupStatus
from rl_core.data.loader import PromptLoader
from rl_core.errors import DeadlineError, MissingRolloutError, WorkerError
from rl_core.metrics import Metric
from rl_core.trainer.ppo import sampler_async
from rl_core.trainer.ppo.sampler_async import ColocateAsyncSampler, batches_ahead
from rl_core.trainer.ppo.step import METRICS_KEY
from rl_core.workers.rollout_rows import RolloutFailure, continued, pack_rows, unpack_rows

ITEMS = [{"prompt_ids": [5] * (i + 1), "raw_prompt": f"p{i}", "data_source": "d", "index": i} for i in range(8)]


class Workers:
    """4 tokens make a response; ``script[uid]`` are drawn before the cut, or else all. Polls return one row, the oldest.

    When nobody else is left, they wait for the slow ones: the rest of theirs is drawn.
    """

    def __init__(self, script=None, fails=()):
        self.script, self.fails = script or {}, fails
        self.version, self.submitted, self.log = 0, [], []
        self.in_hand, self.is_stuck = {}, False

    def generate_sequences(self, prompts):
        raise AssertionError

    def get_policy_version(self):
        return self.version

    def submit_rollouts(self, prompts):
        self.log.append("submit")
        self.submitted.append(list(prompts.non_tensor_batch["request_id"]))
        self.in_hand = {row.request_id: row for row in unpack_rows(prompts)}
        empty = pack_rows([], has_log_probs=True)
        empty.meta_info[METRICS_KEY] = {"rollout/weight_version": [Metric(self.version, "max")]}
        return empty

    def _served(self, row):
        uid = row.request_id.rpartition("-")[0]
        if uid in self.fails:
            return continued(row, RolloutFailure(FailureKind.ERROR, "broken"), seconds=1.0)
        count = min(self.script.get(uid, 4), 4 - len(row.token_ids))
        output = SimpleNamespace(
            token_ids=(1,) * count,
            log_probs=(-float(self.version),) * count,
            versions=((self.version, count),),
            extras={},
            finish_reason="stop" if len(row.token_ids) + count == 4 else "abort",
        )
        return continued(row, output, seconds=1.0)

    def poll_rollouts(self, wait_s):
        if self.is_stuck:
            return pack_rows([], has_log_probs=True)
        served = {name: self._served(row) for name, row in sorted(self.in_hand.items())}
        ended = [name for name, row in served.items() if row.is_settled]
        if not ended:
            self.script = {}
            return self.poll_rollouts(wait_s)
        del self.in_hand[ended[0]]
        return pack_rows([served[ended[0]]], has_log_probs=True)

    def abort_rollouts(self):
        self.log.append("abort")
        rows = [self._served(row) for row in self.in_hand.values()]
        self.in_hand = {}
        return pack_rows(rows, has_log_probs=True)


def config(
    strategy="drop",
    threshold=8,
    warmup=1,
    limit=0.5,
    steps=None,
    n=1,
    mini=2,
    epochs=1,
    greedy=False,
    drops_groups=False,
):
    rollout = SimpleNamespace(
        n=n,
        temperature=1.0,
        top_p=1.0,
        top_k=-1,
        response_length=None,
        ignore_eos=False,
        min_tokens=0,
        stop=[],
        stop_token_ids=[],
        greedy_baseline=greedy,
    )
    return SimpleNamespace(
        actor_rollout_ref=SimpleNamespace(
            rollout=rollout, actor=SimpleNamespace(ppo_epochs=epochs, ppo_mini_batch_size=mini)
        ),
        data=SimpleNamespace(max_response_length=6, train_batch_size=2),
        algorithm=SimpleNamespace(filter_groups=SimpleNamespace(enable=drops_groups)),
        trainer=SimpleNamespace(
            seed=3,
            rollout_deadline_s=9.0,
            max_failed_rollout_fraction=limit,
            total_training_steps=steps,
            v1=SimpleNamespace(
                colocate_async=SimpleNamespace(num_warmup_batches=warmup),
                sampler=SimpleNamespace(max_off_policy_threshold=threshold, max_off_policy_strategy=strategy),
            ),
        ),
    )


def sampler(workers, **overrides):
    loader = PromptLoader(ITEMS, batch_size=2, epochs=1, shuffle=False, seed=0)
    return ColocateAsyncSampler.from_workers(config(**overrides), loader, workers)


def uid(draw, row):
    return f"{draw:07d}-{row:06d}"


def prompts_of(batch):
    return batch.non_tensor_batch["raw_prompt"].tolist()


def rows(batch, name):
    return [row.tolist() for row in batch.batch[name].unbind()]


def test_what_is_ready_first_makes_the_batch_and_the_rest_goes_on_with_the_next_weights():
    workers = Workers({uid(0, 0): 3})
    source = sampler(workers)
    first = source.next()

    # Prompt 0 needs a second phase: 1 and 2 were ready before it.
    assert prompts_of(first) == ["p1", "p2"]
    assert [(group.uid, group.status) for group in source.groups] == [
        (uid(0, 0), GroupStatus.RUNNING),
        (uid(0, 1), GroupStatus.FINISHED),
        (uid(1, 0), GroupStatus.FINISHED),
        (uid(1, 1), GroupStatus.FINISHED),
    ]
    metrics = first.meta_info[METRICS_KEY]
    assert metrics["rollout/weight_version"].value == 0
    assert metrics["rollout/cut"].value == 1
    assert metrics["rollout/prompts_in_flight"].value == 2
    workers.version = 2
    workers.script = {}
    second = source.next()

    # Prompt 3 was ready when the last phase ended; 0 goes on from its three tokens.
    assert prompts_of(second) == ["p0", "p3"]
    assert f"{uid(0, 0)}-0" in workers.submitted[1]
    assert second.non_tensor_batch["version_spans"].tolist() == [((0, 3), (2, 1)), ((0, 4),)]
    assert rows(second, "rollout_log_probs") == [[0, 0, 0, -2], [0] * 4]
    assert rows(second, "on_policy_mask") == [[False, False, False, True], [False] * 4]
    assert second.batch["weight_version"].tolist() == [0, 0]
    metrics = second.meta_info[METRICS_KEY]
    assert metrics["rollout/staleness/mean"].value == 2
    assert metrics["rollout/staleness/max"].value == 2
    assert metrics["rollout/version_spans/max"].value == 2
    assert metrics["rollout/off_policy_tokens"].value == pytest.approx(7 / 8)
    assert workers.log == ["submit", "abort"] * 2


def test_a_batch_that_is_ready_needs_no_generation():
    workers = Workers()
    source = sampler(workers)
    source.next()
    assert prompts_of(source.next()) == ["p2", "p3"]
    assert workers.log == ["submit", "abort"]


def test_every_prompt_is_trained_once_and_then_the_data_is_used_up():
    workers = Workers({uid(0, 0): 1, uid(1, 1): 2, uid(3, 0): 2})
    source = sampler(workers, warmup=2)
    seen = []
    for _ in range(4):
        seen += prompts_of(source.next())
        workers.version += 1
    assert sorted(seen) == [f"p{number}" for number in range(8)]
    with pytest.raises(StopIteration):
        source.next()


def test_no_more_is_drawn_than_the_run_will_train_on():
    workers = Workers()
    source = sampler(workers, steps=1)
    source.next()
    assert len(workers.submitted[0]) == 2


def test_with_dynamic_sampling_nobody_knows_how_much_is_needed():
    workers = Workers()
    sampler(workers, steps=1, drops_groups=True).next()
    assert len(workers.submitted[0]) == 4


def test_a_prompt_waits_for_its_greedy_response_which_is_no_member_of_its_group():
    workers = Workers({uid(0, 0): 4})
    source = sampler(workers, greedy=True, warmup=0)
    batch = source.next()
    assert batch.non_tensor_batch["request_id"].tolist() == [
        f"{uid(0, row)}-{sample}" for row in (0, 1) for sample in ("0", "greedy")
    ]
    assert [group.size for group in source.groups] == [1, 1]
    state = source.state_dict()
    resumed = sampler(Workers(), greedy=True, warmup=0)
    resumed.load_state_dict(state)
    assert prompts_of(resumed.next()) == ["p2", "p2", "p3", "p3"]


def test_a_response_beyond_the_threshold_is_drawn_anew_and_waited_for():
    workers = Workers({uid(0, 0): 1})
    source = sampler(workers, threshold=1)
    assert prompts_of(source.next()) == ["p1", "p2"]
    workers.version = 2
    workers.script = {}
    batch = source.next()

    assert prompts_of(batch) == ["p0", "p3"]
    assert batch.non_tensor_batch["version_spans"].tolist() == [((2, 4),)] * 2
    assert batch.meta_info[METRICS_KEY]["rollout/too_old"].value == 2
    assert batch.meta_info[METRICS_KEY]["rollout/staleness/max"].value == 0


def test_without_a_threshold_nothing_is_too_old():
    workers = Workers({uid(0, 0): 1})
    source = sampler(workers, threshold=None)
    source.next()
    workers.version = 100
    workers.script = {}
    assert source.next().meta_info[METRICS_KEY]["rollout/staleness/max"].value == 100


def test_waiting_keeps_the_order_of_the_data():
    workers = Workers({uid(0, 0): 2})
    source = sampler(workers, strategy="wait")
    assert prompts_of(source.next()) == ["p0", "p1"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"strategy": "drop", "threshold": 0}, 3),
        ({"strategy": "wait", "threshold": None}, 3),
        # One optimizer step a batch: as many batches as versions.
        ({"strategy": "wait", "threshold": 8}, 3),
        ({"strategy": "wait", "threshold": 2}, 2),
        ({"strategy": "wait", "threshold": 0}, 0),
        # Two mini-batches in two epochs are four versions.
        ({"strategy": "wait", "threshold": 8, "mini": 1, "epochs": 2}, 2),
        ({"strategy": "wait", "threshold": 3, "mini": 1, "epochs": 2}, 0),
    ],
)
def test_how_far_ahead(changes, expected):
    assert batches_ahead(config(warmup=3, **changes)) == expected


def test_failed_groups_count_for_the_batch_and_uneven_ones_train():
    workers = Workers(fails={uid(0, 1)})
    source = sampler(workers)
    batch = source.next()
    assert prompts_of(batch) == ["p0"]
    assert source.groups[1].status is GroupStatus.FAILED
    assert source.groups[1].errors == ("broken",)
    metrics = batch.meta_info[METRICS_KEY]
    assert (metrics["rollout/failed"].value, metrics["rollout/errors"].value) == (1, 1)
    assert prompts_of(source.next()) == ["p2", "p3"]


def test_too_many_failures_stop_the_run():
    with pytest.raises(MissingRolloutError, match=rf"2 of 2 rollouts failed.*{uid(0, 0)}: broken"):
        sampler(Workers(fails={uid(0, 0), uid(0, 1)})).next()


def test_resuming_keeps_the_prompts_and_draws_their_responses_anew():
    workers = Workers({uid(0, 0): 3})
    first = sampler(workers)
    seen = prompts_of(first.next())
    state = first.state_dict()
    assert state["in_flight"] == [[0, 0], [1, 1]]

    again = Workers()
    resumed = sampler(again)
    resumed.load_state_dict(state)
    for _ in range(3):
        batch = resumed.next()
        seen += prompts_of(batch)
        assert batch.batch["weight_version"].tolist() == [0, 0]
    assert sorted(seen) == [f"p{number}" for number in range(8)]
    # The same draws: uids and seeds are those of the first run.
    assert f"{uid(0, 0)}-0" in again.submitted[0]


def test_a_run_of_the_synchronous_schedule_can_go_on():
    resumed = sampler(Workers())
    resumed.load_state_dict({"step": 3, "loader": {"num_drawn": 3, "num_rows": 8, "batch_size": 2}})
    assert prompts_of(resumed.next()) == ["p6", "p7"]


def test_seeds_do_not_depend_on_the_schedule():
    batch = sampler(Workers(), n=2).next()
    again = sampler(Workers(), n=2, warmup=3).next()
    assert torch.equal(batch.batch["seed"], again.batch["seed"])
    assert batch.non_tensor_batch["uid"].tolist() == [uid(0, 0)] * 2 + [uid(0, 1)] * 2


def test_workers_that_never_answer_are_named_in_an_error(monkeypatch):
    monkeypatch.setattr(sampler_async, "STALL_S", -9.0)
    workers = Workers()
    workers.is_stuck = True
    with pytest.raises(DeadlineError, match=rf"4 responses, which is beyond their deadline.*{uid(0, 0)}-0"):
        sampler(workers).next()


def test_a_response_that_does_not_come_back_from_the_abort_is_an_error():
    workers = Workers({uid(1, 1): 1})
    workers.abort_rollouts = lambda: pack_rows([], has_log_probs=True)
    with pytest.raises(WorkerError, match="did not return 2 responses"):
        sampler(workers).next()
