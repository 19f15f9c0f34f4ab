"""Which steps are recorded, and as what."""

from types import SimpleNamespace

import pytest
from rl_core.config.profiler import GlobalProfilerConfig
from rl_core.trainer.ppo.profiles import StepProfiles


class Group:
    def __init__(self):
        self.calls = []

    def start_profile(self):
        self.calls.append("start")

    def stop_profile(self, folder, label):
        self.calls.append(f"{folder}: {label}")


def run(group, numbers, **profiler):
    config = SimpleNamespace(
        global_profiler=GlobalProfilerConfig(**profiler), trainer=SimpleNamespace(default_local_dir="/runs/a")
    )
    profiles = StepProfiles(config, [group, None, group])
    for step in numbers:
        with profiles.step(step):
            group.calls.append(step)
    return group.calls


def test_single_steps():
    assert run(Group(), [1, 2, 3, 4], tool="torch", steps=[2, 3]) == [
        1, "start", 2, "/runs/a/profile: step_2", "start", 3, "/runs/a/profile: step_3", 4
    ]  # fmt: skip


def test_neighbours_as_one():
    calls = run(Group(), range(1, 7), tool="torch", steps=[2, 3, 5], profile_continuous_steps=True, save_path="/p")
    assert calls == [1, "start", 2, 3, "/p: step_2_to_3", 4, "start", 5, "/p: step_5", 6]


def test_without_a_tool_nothing_is_called():
    assert run(Group(), [1, 2], steps=[1]) == [1, 2]


def test_a_step_that_fails_is_written_too():
    group = Group()
    config = SimpleNamespace(
        global_profiler=GlobalProfilerConfig(tool="torch", steps=[1], save_path="/p"),
        trainer=SimpleNamespace(default_local_dir="/runs/a"),
    )
    with pytest.raises(ValueError, match="boom"), StepProfiles(config, [group]).step(1):
        raise ValueError("boom")
    assert group.calls == ["start", "/p: step_1"]
