"""Which workers record, and what is on disk afterwards."""

import gzip
import json
from pathlib import Path

import pytest
import torch
from rl_core.config.profiler import GlobalProfilerConfig, RoleProfilerConfig
from rl_core.errors import ConfigError, RlError
from rl_core.runtime.local import LocalWorkerGroup
from rl_core.single_controller.base import Dispatch, register
from rl_core.workers.profiling.worker import ProfiledWorker, is_recorded


class Adder(ProfiledWorker):
    def __init__(self, context, **settings):
        super().__init__(context, name="adders", **settings)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def work(self):
        with torch.profiler.record_function("phase: adding"):
            return float((torch.ones(8) + torch.ones(8)).sum())


def group(profiler, roles, world_size=1):
    return LocalWorkerGroup(Adder, world_size, profiler=profiler, roles=roles)


def test_a_trace_holds_the_work_between_start_and_stop(tmp_path):
    workers = group(GlobalProfilerConfig(tool="torch"), [RoleProfilerConfig()])
    workers.start_profile()
    workers.work()
    (path,) = workers.stop_profile(str(tmp_path), "step_3")
    assert path == str(tmp_path / "adders" / "step_3_rank_0.json.gz")
    events = {event["name"] for event in json.loads(gzip.decompress(Path(path).read_bytes()))["traceEvents"]}
    assert {"phase: adding", "aten::add", "aten::sum"} <= events


@pytest.mark.parametrize(
    ("profiler", "roles"),
    [
        (None, [RoleProfilerConfig()]),
        (GlobalProfilerConfig(), [RoleProfilerConfig()]),
        (GlobalProfilerConfig(tool="torch"), [RoleProfilerConfig(enable=False)]),
        (GlobalProfilerConfig(tool="torch"), []),
    ],
    ids=["no profiler", "no tool", "role is left out", "no role"],
)
def test_nothing_is_recorded_that_was_not_asked_for(profiler, roles, tmp_path):
    workers = group(profiler, roles)
    workers.start_profile()
    assert workers.work() == [16.0]
    assert workers.stop_profile(str(tmp_path), "step_1") == [None]
    assert list(tmp_path.iterdir()) == []


def test_ranks():
    assert [is_recorded(RoleProfilerConfig(), rank) for rank in range(3)] == [True, False, False]
    assert [is_recorded(RoleProfilerConfig(ranks=[1, 2]), rank) for rank in range(3)] == [False, True, True]
    assert all(is_recorded(RoleProfilerConfig(all_ranks=True), rank) for rank in range(3))
    assert not is_recorded(RoleProfilerConfig(enable=False, all_ranks=True), 0)


@pytest.mark.parametrize("tool", ["torch_memory", "nsys"])
def test_a_tool_for_cuda_says_so_on_a_cpu(tool):
    workers = group(GlobalProfilerConfig(tool=tool), [RoleProfilerConfig()])
    with pytest.raises((ConfigError, RlError), match=rf"tool={tool} records CUDA; this worker is on cpu"):
        workers.start_profile()
