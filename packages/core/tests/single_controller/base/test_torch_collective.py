"""Three processes, each running the same list of situations; what they saw is compared here."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest

SCRIPT = """
import json, os, sys, time
import torch
import torch.distributed as dist
from rl_core.errors import RlError
from rl_core.single_controller.base.collective import WorkerContext
from rl_core.single_controller.base.torch_collective import TorchCollective

torch.set_num_threads(1)
dist.init_process_group("gloo")
world = TorchCollective.of_default_group(deadline_s=30, name="actors")
context = WorkerContext.from_env(collective=world)
rank = context.rank
seen = {"place": [world.rank, world.world_size]}


def error_of(call):
    started = time.monotonic()
    try:
        call()
    except RlError as error:
        return {"type": type(error).__name__, "text": str(error), "seconds": time.monotonic() - started}
    return None


seen["gathered"] = world.all_gather_object({"rank": rank, "data": "x" * (1000 * rank)})
seen["nothing"] = world.all_gather_object(None)
seen["from_2"] = world.broadcast_object(f"of {rank}", source=2)
world.barrier()
seen["bad_source"] = error_of(lambda: world.broadcast_object(1, source=3))

if rank in (0, 2):
    # Their order gives the ranks.
    pair = world.subgroup([2, 0])
    seen["pair"] = [pair.rank, pair.world_size, pair.all_gather_object(rank), pair.broadcast_object(rank, source=0)]
    again = world.subgroup([2, 0])
    seen["again"] = again.all_gather_object(-rank)
alone = world.subgroup([rank])
seen["alone"] = [alone.rank, alone.world_size, alone.all_gather_object(rank)]
seen["stranger"] = error_of(lambda: world.subgroup([r for r in range(3) if r != rank]))
seen["after_subgroups"] = world.all_gather_object(rank)

late = world.subgroup([0, 1, 2])
if rank != 1:
    seen["late"] = error_of(lambda: late.all_gather_object(rank, timeout_s=1.0))
    seen["broken"] = error_of(late.barrier)
world.barrier()

mixed = world.subgroup([0, 1, 2])
seen["mixed"] = error_of(mixed.barrier if rank == 0 else lambda: mixed.all_gather_object(rank))

with open(f"{sys.argv[1]}/{rank}.json", "w") as file:
    json.dump(seen, file)
world.barrier()
if rank == 2:
    os._exit(0)
gone = error_of(world.barrier)
with open(f"{sys.argv[1]}/gone_{rank}.json", "w") as file:
    json.dump(gone, file)
os._exit(0)
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "script.py").write_text(SCRIPT)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(3):
        variables = {"RANK": rank, "WORLD_SIZE": 3, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 3, "MASTER_PORT": port}
        environment = (
            os.environ | {name: str(value) for name, value in variables.items()} | {"MASTER_ADDR": "127.0.0.1"}
        )
        command = [sys.executable, str(folder / "script.py"), str(folder)]
        processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    try:
        for process in processes:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors
    finally:
        for process in processes:
            process.kill()
    reports = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(3)]
    for rank in (0, 1):
        reports[rank]["gone"] = json.loads((folder / f"gone_{rank}.json").read_text())
    return reports


pytestmark = pytest.mark.heavy


def test_every_member_knows_its_place(seen):
    assert [report["place"] for report in seen] == [[0, 3], [1, 3], [2, 3]]


def test_objects_of_any_size_arrive_in_rank_order(seen):
    for report in seen:
        assert [entry["rank"] for entry in report["gathered"]] == [0, 1, 2]
        assert [len(entry["data"]) for entry in report["gathered"]] == [0, 1000, 2000]
        assert report["nothing"] == [None, None, None]


def test_a_broadcast_comes_from_its_source(seen):
    assert [report["from_2"] for report in seen] == ["of 2"] * 3
    assert {report["bad_source"]["type"] for report in seen} == {"ShapeError"}


def test_a_subgroup_is_made_by_its_members_in_their_order(seen):
    assert seen[2]["pair"] == [0, 2, [2, 0], 2]
    assert seen[0]["pair"] == [1, 2, [2, 0], 2]
    assert seen[0]["again"] == seen[2]["again"] == [-2, 0]
    assert {report["stranger"]["type"] for report in seen} == {"ShapeError"}
    assert [report["after_subgroups"] for report in seen] == [[0, 1, 2]] * 3
    assert [report["alone"] for report in seen] == [[0, 1, [rank]] for rank in range(3)]


def test_who_does_not_come_is_named_in_time(seen):
    for rank in (0, 2):
        late = seen[rank]["late"]
        assert late["type"] == "DeadlineError"
        assert f"rank {rank} waited in all_gather_object 1 s for ranks [1]" in late["text"]
        assert late["seconds"] < 5
        assert seen[rank]["broken"]["type"] == "WorkerError"
        assert "cannot call barrier any more" in seen[rank]["broken"]["text"]


def test_different_operations_are_an_error_for_everybody(seen):
    for report in seen:
        assert report["mixed"]["type"] == "WorkerError"
        assert "rank 0 barrier (call 1), rank 1 all_gather_object (call 1)" in report["mixed"]["text"]


def test_a_member_that_ends_releases_the_others(seen):
    for rank in (0, 1):
        assert seen[rank]["gone"]["type"] == "WorkerError"
        assert "a peer failed or left" in seen[rank]["gone"]["text"]
        assert seen[rank]["gone"]["seconds"] < 10
