import pytest
import torch
from rl_core.metrics import merge_metrics, metric_values
from rl_core.workers.memory import GIB, MemoryMeter, memory_metrics, resident_set
from rl_core.workers.phases import Part, Phase, PhaseTable


class Scripted(MemoryMeter):
    """Reads what the test says."""

    def __init__(self, is_device=False):
        super().__init__("cuda:0" if is_device else "cpu")
        self.level = 0
        self.restarts = 0

    def restart(self):
        self.restarts += 1

    def read(self):
        return self.level


class Weights:
    """A part whose memory goes with its states."""

    def __init__(self, meter):
        self.meter, self.on_device = meter, {"parameters"}
        meter.level = GIB

    def resident(self):
        return frozenset(self.on_device)

    def evict(self, states):
        self.on_device -= set(states)
        self.meter.level -= GIB * len(states)

    def load(self, states):
        self.on_device |= set(states)
        self.meter.level += GIB * len(states)


@pytest.fixture
def meter():
    return Scripted()


@pytest.fixture
def table(meter):
    states = ("parameters", "gradients", "optimizer")
    return PhaseTable({Part.ACTOR: Weights(meter)}, {(Part.ACTOR, state) for state in states}, meter)


def test_a_phase_is_measured_before_anything_of_it_leaves(table, meter):
    with table.during(Phase.UPDATE_ACTOR):
        assert meter.level == 3 * GIB
    assert meter.level == 0
    assert table.take_memory() == {"update_actor": 3 * GIB}
    assert table.take_memory() == {}


def test_the_largest_of_several_visits_counts(table, meter):
    for level in (5, 9, 7):
        with table.during(Phase.LOG_PROB):
            meter.level = level
    assert table.take_memory() == {"log_prob": 9}


def test_a_phase_that_follows_directly_ends_the_one_before(table, meter):
    table.enter(Phase.SYNC_WEIGHTS)
    table.enter(Phase.GENERATE)
    table.leave(Phase.GENERATE)
    assert table.take_memory() == {"sync_weights": GIB, "generate": 0}
    assert meter.restarts == 2


def test_a_table_without_a_meter_measures_nothing():
    table = PhaseTable({}, set())
    with table.during(Phase.LOG_PROB):
        pass
    assert table.take_memory() == {}


def test_metrics_are_the_largest_over_the_workers(table, meter):
    reports = []
    for level in (2, 3):
        with table.during(Phase.LOG_PROB):
            meter.level = level * GIB
        reports.append(memory_metrics("actor", table))
    values = metric_values(merge_metrics(reports))
    assert values["memory/actor/log_prob_gib"] == 3.0
    assert values["perf/cpu_memory_used_gb"] == pytest.approx(resident_set() / GIB, rel=0.2)
    assert "perf/max_memory_allocated_gb" not in values  # there is no device


def test_a_device_has_the_peak_of_the_step_too():
    meter = Scripted(is_device=True)
    table = PhaseTable({}, set(), meter)
    for phase, level in ((Phase.LOG_PROB, 2), (Phase.VALUES, 4)):
        with table.during(phase):
            meter.level = level * GIB
    values = metric_values(memory_metrics("critic", table))
    assert values["perf/max_memory_allocated_gb"] == 4.0
    assert values["memory/critic/values_gib"] == 4.0


def test_the_resident_set_grows_with_what_a_process_holds():
    before = MemoryMeter("cpu").read()
    held = torch.ones(64 * 2**20 // 8, dtype=torch.float64)
    assert 48 * 2**20 <= MemoryMeter("cpu").read() - before <= 128 * 2**20
    assert held.numel()


@pytest.mark.gpu
def test_a_device_peak_starts_anew():
    meter = MemoryMeter("cuda:0")
    big = torch.ones(64 * 2**20, dtype=torch.uint8, device="cuda:0")
    assert meter.read() >= 64 * 2**20
    del big
    meter.restart()
    assert meter.read() < 64 * 2**20
