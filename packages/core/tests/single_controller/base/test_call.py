import asyncio
import pickle

import pytest
import torch
from rl_core.single_controller.base.call import Call, CallScope, invoke
from rl_core.single_controller.base.collective import DispatchInfo
from rl_core.single_controller.base.future import WorkerFuture
from rl_dataproto import DataProto, DataProtoFuture


class Answer(WorkerFuture):
    def __init__(self, value):
        self.value, self.timeout = value, None

    def result(self, timeout=None):
        self.timeout = timeout
        return self.value

    def done(self):
        return True


class Critic:
    def values(self, *args, **kwargs):
        return args, kwargs

    async def later(self, value):
        await asyncio.sleep(0)
        self.seen = value
        return value


class Process(Critic):
    def __init__(self):
        self.fused_worker_dict = {"critic": Critic()}


def run(method, *args, answers=True, materialize=True, worker=None, **kwargs):
    return invoke(worker or Process(), method, Call(args, kwargs, answers), materialize=materialize, timeout_s=3.0)


def test_arguments_arrive_as_they_are():
    payload = [1, 2]
    args, kwargs = run("values", payload, scale=2)
    assert args[0] is payload
    assert kwargs == {"scale": 2}


def test_futures_are_waited_for():
    answer = Answer(7)
    assert run("values", answer, scale=answer) == ((7,), {"scale": 7})
    assert answer.timeout == 3.0


def test_a_batch_future_becomes_a_batch():
    halves = [Answer(DataProto.from_dict({"x": torch.tensor([value])})) for value in (1, 2)]
    (batch,), _ = run("values", DataProtoFuture.concat(halves))
    assert batch.batch["x"].tolist() == [1, 2]


def test_futures_are_handed_over_when_asked():
    answer = Answer(7)
    assert run("values", answer, materialize=False) == ((answer,), {})


def test_futures_inside_a_list_are_the_methods_business():
    answer = Answer(7)
    assert run("values", [answer]) == (([answer],), {})


def test_a_role_of_a_fused_worker_is_addressed_by_name():
    process = Process()
    process.fused_worker_dict["critic"].values = lambda: "of the critic"
    assert run("critic.values", worker=process) == "of the critic"


def test_an_output_that_nobody_wants_is_dropped():
    assert run("values", 1, answers=False) is None
    process = Process()
    assert asyncio.run(run("later", 5, answers=False, worker=process)) is None
    assert process.seen == 5
    assert asyncio.run(run("later", 5)) == 5


def test_a_scope_travels_without_its_group():
    infos = (DispatchInfo(0, 1, True),)
    scope = CallScope("actor", "update", 1, lambda mesh: pytest.fail("asked the group"), {"pad": 1})
    copy = pickle.loads(pickle.dumps(scope.knowing({"train": infos})))
    assert copy.dispatch_info("train") == infos
    assert copy.carry == {"pad": 1}
    assert str(copy) == "actor.update"
