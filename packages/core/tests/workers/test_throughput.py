"""Tokens a second, padding and MFU of phases, with a clock that the test winds."""

from types import SimpleNamespace

import pytest
from rl_core.contracts.engine import EngineWork
from rl_core.single_controller.base import DispatchInfo
from rl_core.workers import throughput
from rl_core.workers.device_peak import device_peak, peak_of
from rl_core.workers.throughput import PhaseClock


class Engine:
    """Has done what the test says."""

    def __init__(self, world_size=1, dp_size=1, *, is_collect=True):
        self.context = SimpleNamespace(world_size=world_size)
        self.work = []
        self._info = DispatchInfo(dp_rank=0, dp_size=dp_size, is_collect=is_collect)

    def dispatch_info(self):
        return self._info

    def take_work(self):
        return self.work.pop() if self.work else None


@pytest.fixture
def wind(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(throughput.time, "perf_counter", lambda: now[0])

    def forward(seconds):
        now[0] += seconds

    return forward


def values(clock):
    return {name: metric.value for name, metric in clock.take().items()}


def test_a_phase_in_numbers(wind):
    engine = Engine()
    clock = PhaseClock([engine], peak=1000.0)
    clock.start()
    engine.work.append(EngineWork(tokens=60, computed_tokens=80, flops=1000.0))
    wind(2.0)
    clock.stop("update_actor")
    assert values(clock) == {
        "perf/tokens_per_second/actor": 30.0,
        "perf/padding/actor": 0.25,
        "perf/mfu/actor": 0.5,
    }
    assert clock.take() == {}


def test_calls_of_one_phase_add_up_and_what_came_before_belongs_to_none(wind):
    engine = Engine()
    clock = PhaseClock([engine], peak=None)
    engine.work.append(EngineWork(tokens=7, computed_tokens=7))
    clock.start()
    for seconds in (1.0, 3.0):
        engine.work.append(EngineWork(tokens=20, computed_tokens=20, flops=5.0))
        wind(seconds)
        clock.stop("log_prob")
        wind(50.0)  # between phases
        clock.start()
    assert values(clock) == {"perf/tokens_per_second/actor_infer": 10.0, "perf/padding/actor_infer": 0.0}


def test_devices_that_share_rows_share_the_work_and_one_of_them_tells(wind):
    leads, follows = Engine(8, 4), Engine(8, 4, is_collect=False)
    clocks = [PhaseClock([engine], peak=100.0) for engine in (leads, follows)]
    for engine, clock in zip((leads, follows), clocks, strict=True):
        clock.start()
        engine.work.append(EngineWork(tokens=10, computed_tokens=10, flops=100.0))
        wind(1.0)
        clock.stop("values")
    assert values(clocks[0])["perf/mfu/critic_infer"] == 0.5
    assert values(clocks[1]) == {}


def test_an_engine_that_counts_no_flops_has_no_mfu(wind):
    engine = Engine()
    clock = PhaseClock([engine], peak=100.0)
    clock.start()
    engine.work.append(EngineWork(tokens=10, computed_tokens=10))
    wind(1.0)
    clock.stop("ref_log_prob")
    assert set(values(clock)) == {"perf/tokens_per_second/ref", "perf/padding/ref"}


@pytest.mark.parametrize(
    ("name", "tera"),
    [
        ("NVIDIA H200", 989),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H20", 148),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A10", 125),
        ("NVIDIA L40S", 362),
        ("NVIDIA L4", 121),
        ("NVIDIA GB200", 2500),
        ("AMD Instinct MI300X", 1307.4),
    ],
)
def test_peaks_by_name(name, tera):
    assert peak_of(name) == tera * 1e12


def test_no_peak_is_guessed():
    assert peak_of("NVIDIA GeForce GTX 1080") is None
    assert device_peak("cpu") is None
