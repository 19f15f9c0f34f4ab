import pytest
from rl_report import load_run
from rl_report.costs import memory, timing


def test_phases_add_up_and_parts_of_them_stand_apart(folder):
    times = timing(load_run(folder))
    assert times.total_s == 30.0
    assert times.step_s == 10.0
    assert [(phase.label, phase.total_s) for phase in times.phases] == [
        ("generate", 9.0),
        ("update actor", 18.0),
        ("validate", 0.5),
        ("everything else", 2.5),
    ]
    assert sum(phase.share for phase in times.phases) == pytest.approx(1.0)
    assert [(phase.label, phase.total_s) for phase in times.inside] == [("update weights", 1.5)]


def test_a_checkpoint_stands_outside_of_the_step(logged, row):
    times = timing(load_run(logged(row(1, 0.1), row(2, 0.2) | {"timing_s/save_checkpoint": 5.0})))
    assert times.total_s == 25.0
    assert {phase.label: phase.total_s for phase in times.phases}["save checkpoint"] == 5.0


def test_a_run_without_known_phases_shows_those_it_has(logged):
    times = timing(load_run(logged({"step": 1, "timing_s/pack": 1.0, "timing_s/fit": 3.0, "timing_s/step": 4.0})))
    assert {phase.label: phase.share for phase in times.phases} == {"fit": 0.75, "pack": 0.25}


def test_a_run_without_times(logged):
    times = timing(load_run(logged({"step": 1, "x": 1.0})))
    assert (times.total_s, times.phases, times.inside) == (0.0, (), ())


def test_memory_is_the_largest_of_all_steps_in_the_order_of_a_step(folder):
    held = memory(load_run(folder))
    assert [(item.role, item.phase, item.gib) for item in held.phases] == [
        ("actor_rollout_ref", "generate", 4.0),
        ("actor_rollout_ref", "update_actor", 0.25),
    ]
    assert not held.is_device
    assert held.host_gib == 1.5


def test_memory_of_a_device(logged, row):
    assert memory(load_run(logged(row(1, 0.1) | {"perf/max_memory_allocated_gb": 2.0}))).is_device


def test_a_run_without_memory(logged):
    held = memory(load_run(logged({"step": 1, "x": 1.0})))
    assert (held.phases, held.host_gib) == ((), None)
