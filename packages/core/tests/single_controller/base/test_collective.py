import pytest
from rl_core.errors import ConfigError, ShapeError
from rl_core.single_controller.base.collective import SoloCollective, WorkerContext, check_subgroup

ENVIRON = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "10.0.0.7",
    "MASTER_PORT": "29500",
}


class TwoOfThem(SoloCollective):
    world_size = 8


def test_the_environment_and_back():
    collective = TwoOfThem()
    context = WorkerContext.from_env(environ=ENVIRON, device="cuda:1", collective=collective)
    assert context == WorkerContext(5, 8, 1, 4, "cuda:1", collective, "10.0.0.7", 29500)
    assert context.to_env() == ENVIRON


def test_the_process_environment_is_read(monkeypatch):
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RANK", "6")
    assert WorkerContext.from_env(collective=TwoOfThem()).rank == 6


def test_one_worker_needs_no_collective():
    context = WorkerContext.from_env(
        environ=ENVIRON | {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    )
    assert context.collective.all_gather_object("x") == ["x"]


def test_several_workers_need_one():
    with pytest.raises(ConfigError, match="WORLD_SIZE is 8, but no collective"):
        WorkerContext.from_env(environ=ENVIRON)


def test_missing_variables_are_named():
    environ = {name: value for name, value in ENVIRON.items() if name not in ("RANK", "MASTER_PORT")}
    with pytest.raises(ConfigError, match="missing: RANK, MASTER_PORT"):
        WorkerContext.from_env(environ=environ, collective=TwoOfThem())


def test_a_variable_that_is_no_number():
    with pytest.raises(ConfigError, match="RANK must be a whole number; it is 'two'"):
        WorkerContext.from_env(environ=ENVIRON | {"RANK": "two"}, collective=TwoOfThem())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"RANK": "8"}, r"rank \(8\) must be at least 0 and below world_size \(8\)"),
        ({"RANK": "-1"}, r"rank \(-1\)"),
        ({"LOCAL_RANK": "4"}, r"local_rank \(4\) .* local_world_size \(4\)"),
        ({"LOCAL_WORLD_SIZE": "9"}, r"local_world_size \(9\) is larger than world_size \(8\)"),
    ],
)
def test_positions_that_contradict_each_other(change, message):
    with pytest.raises(ConfigError, match=message):
        WorkerContext.from_env(environ=ENVIRON | change, collective=TwoOfThem())


def test_a_group_of_one_meets_itself():
    solo = SoloCollective()
    payload = object()
    assert solo.all_gather_object(payload)[0] is payload
    assert solo.broadcast_object(payload) is payload
    solo.barrier()
    assert solo.subgroup([0]).world_size == 1
    with pytest.raises(ShapeError, match="from rank 1"):
        solo.broadcast_object(payload, source=1)


def test_subgroups_are_made_of_members():
    check_subgroup([2, 0], rank=0, world_size=3)
    with pytest.raises(ShapeError, match=r"distinct ranks below 3; got \[0, 3\]"):
        check_subgroup([0, 3], rank=0, world_size=3)
    with pytest.raises(ShapeError, match=r"distinct ranks below 3; got \[0, 0\]"):
        check_subgroup([0, 0], rank=0, world_size=3)
    with pytest.raises(ShapeError, match="rank 1 asked for the subgroup"):
        check_subgroup([0, 2], rank=1, world_size=3)
