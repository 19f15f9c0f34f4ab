import torch
from rl_core.contracts.rollout import SamplingParams
from rl_core.contracts.sampler import FailureKind, GroupStatus
from rl_core.trainer.ppo.sampler import make_prompts
from rl_core.trainer.ppo.sampler_flight import Flight, rows_of
from rl_core.workers.rollout_rows import RolloutFailure, RolloutRow


def prompts(draw, count=2):
    items = [{"prompt_ids": [draw, row], "raw_prompt": f"{draw}.{row}"} for row in range(count)]
    return make_prompts(items, step=draw, seed=1, num_samples=2, sampling=SamplingParams(), deadline_s=7.0)


def flight(*draws):
    made = Flight()
    for draw in draws:
        made.add(draw, prompts(draw))
    return made


def name(draw, row, sample):
    return f"{draw:07d}-{row:06d}-{sample}"


def whole(draw, row, sample, version=3):
    return RolloutRow(
        request_id=name(draw, row, sample),
        token_ids=torch.tensor([8]),
        log_probs=torch.tensor([-1.0]),
        versions=((version, 1),),
        finish_reason="stop",
    )


def test_only_chosen_prompts_of_a_draw_are_taken_in():
    made = Flight()
    made.add(4, prompts(4, count=3), rows={2})
    assert [(entry.draw, entry.row, entry.group.uid) for entry in made.entries] == [(4, 2, "0000004-000002")]
    assert made.start().non_tensor_batch["raw_prompt"].tolist() == ["4.2"] * 2


def test_old_and_new_prompts_alternate_so_that_every_replica_gets_both():
    batch = flight(0, 1).start()
    assert batch.non_tensor_batch["request_id"].tolist() == [
        name(draw, row, sample) for row in (0, 1) for draw in (0, 1) for sample in (0, 1)
    ]
    assert [row.tolist() for row in batch.batch["prompts"].unbind()][::2] == [[0, 0], [1, 0], [0, 1], [1, 1]]
    assert batch.meta_info["deadline_s"] == 7.0


def test_a_group_settles_with_its_last_response():
    made = flight(0)
    made.start()
    assert made.entries[0].group.status is GroupStatus.RUNNING
    assert made.entries[0].group.deadline_s == 7.0
    assert made.take([whole(0, 0, 0)]) == []
    late = RolloutRow(request_id=name(0, 0, 1), failure=RolloutFailure(FailureKind.LOST, "late"))
    (settled,) = made.take([late])
    assert settled is made.entries[0]
    assert (settled.group.status, settled.group.num_failed) == (GroupStatus.FINISHED, 1)
    # What is there is not asked for again, and the failed one is no row.
    assert made.start().non_tensor_batch["request_id"].tolist() == [name(0, 1, 0), name(0, 1, 1)]
    found, rows = rows_of([settled], settled=True)
    assert [row.request_id for row in rows] == [name(0, 0, 0)]
    assert found.non_tensor_batch["raw_prompt"].tolist() == ["0.0"]


def test_dropping_old_tokens_unsettles_the_prompt_and_keeps_its_other_responses():
    made = flight(0)
    made.take([whole(0, 0, 0, version=1), whole(0, 0, 1, version=3)])
    assert made.drop_older_than(1) == 0
    assert made.drop_older_than(2) == 1
    entry = made.entries[0]
    assert (entry.settled_at, entry.is_due, entry.group.status) == (None, True, GroupStatus.PENDING)
    assert name(0, 0, 1) not in made.start().non_tensor_batch["request_id"].tolist()
    assert made.take([whole(0, 0, 0, version=3)]) == [entry]


def test_prompts_leave_when_they_are_handed_over():
    made = flight(0, 1)
    made.remove(made.entries[:3])
    assert [(entry.draw, entry.row) for entry in made.entries] == [(1, 1)]
