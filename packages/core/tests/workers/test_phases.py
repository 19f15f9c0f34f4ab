import pytest
from rl_core.errors import RlError
from rl_core.workers.phases import NEEDS, Part, Phase, PhaseTable


class Recorder:
    """A movable part that writes down what is on the device after every move."""

    def __init__(self, part, states, log, resident=()):
        self.part, self.states, self.log, self.on_device = part, set(states), log, set(resident)

    def resident(self):
        return frozenset(self.on_device)

    def evict(self, states):
        self.on_device -= set(states)
        self.log.append(("evict", self.part, tuple(sorted(states))))

    def load(self, states):
        self.on_device |= set(states)
        self.log.append(("load", self.part, tuple(sorted(states))))


@pytest.fixture
def log():
    return []


@pytest.fixture
def parts(log):
    actor = Recorder(Part.ACTOR, {"parameters", "gradients", "optimizer"}, log, {"parameters", "optimizer"})
    rollout = Recorder(Part.ROLLOUT, {"weights", "kv_cache"}, log)
    return {Part.ACTOR: actor, Part.ROLLOUT: rollout}


ALL = {(Part.ACTOR, s) for s in ("parameters", "gradients", "optimizer")} | {
    (Part.ROLLOUT, s) for s in ("weights", "kv_cache")
}


def test_eviction_comes_before_loading_so_that_three_states_never_coexist(parts, log):
    table = PhaseTable(parts, ALL)

    table.enter(Phase.SYNC_WEIGHTS)
    assert log == [("evict", Part.ACTOR, ("optimizer",)), ("load", Part.ROLLOUT, ("weights",))]
    log.clear()
    table.enter(Phase.GENERATE)
    assert log == [("evict", Part.ACTOR, ("parameters",)), ("load", Part.ROLLOUT, ("kv_cache",))]
    assert table.resident() == NEEDS[Phase.GENERATE]
    table.leave(Phase.GENERATE)
    assert table.resident() == frozenset()


def test_what_may_stay_stays(parts):
    table = PhaseTable(parts, {(Part.ROLLOUT, "weights"), (Part.ROLLOUT, "kv_cache")})

    with table.during(Phase.UPDATE_ACTOR):
        assert (Part.ACTOR, "gradients") in table.resident()
    table.enter(Phase.SYNC_WEIGHTS)
    table.enter(Phase.GENERATE)
    table.leave(Phase.GENERATE)
    assert table.resident() == {(Part.ACTOR, s) for s in ("parameters", "gradients", "optimizer")}


def test_the_phase_is_left_even_after_an_error(parts):
    table = PhaseTable(parts, ALL)
    with pytest.raises(ZeroDivisionError), table.during(Phase.LOG_PROB):
        assert table.phase is Phase.LOG_PROB
        1 / 0  # noqa: B018
    assert table.phase is None
    assert table.resident() == {(Part.ACTOR, "optimizer")} - ALL


def test_every_phase_has_a_row():
    assert set(NEEDS) == set(Phase)


def test_parts_of_other_workers_are_ignored(log):
    table = PhaseTable({Part.CRITIC: Recorder(Part.CRITIC, {"parameters"}, log)}, set())
    table.enter(Phase.GENERATE)
    assert log == []
    table.enter(Phase.VALUES)
    assert log == [("load", Part.CRITIC, ("parameters",))]


def test_nothing_takes_the_devices_from_responses_in_flight(parts):
    table = PhaseTable(parts, ALL)
    table.enter(Phase.SYNC_WEIGHTS)
    table.enter(Phase.GENERATE)
    with (
        pytest.raises(RlError, match="log_prob was asked for while responses are generated"),
        table.during(Phase.LOG_PROB),
    ):
        pass
    table.leave(Phase.GENERATE)
    with table.during(Phase.LOG_PROB):
        pass


def test_a_reward_model_and_its_reference_take_turns(log):
    model = Recorder(Part.REWARD_MODEL, {"parameters", "gradients", "optimizer"}, log)
    reference = Recorder(Part.REWARD_REFERENCE, {"parameters"}, log)
    parts = {Part.REWARD_MODEL: model, Part.REWARD_REFERENCE: reference}
    evictable = {(part, state) for part, movable in parts.items() for state in movable.states}
    table = PhaseTable(parts, evictable)
    for phase, wanted in (
        (Phase.REWARD_REFERENCE, {(Part.REWARD_REFERENCE, "parameters")}),
        (Phase.REWARD_MODEL, {(Part.REWARD_MODEL, "parameters")}),
        (Phase.UPDATE_REWARD_MODEL, {(Part.REWARD_MODEL, state) for state in model.states}),
        (Phase.CHECKPOINT, {(Part.REWARD_MODEL, "parameters"), (Part.REWARD_MODEL, "optimizer")}),
    ):
        with table.during(phase):
            assert table.resident() == wanted
        assert table.resident() == frozenset()
