import pytest
from rl_core.config.layout import RM, SFT
from rl_core.config.memory_knobs import KNOBS, SECTIONS, advice
from rl_core.config.phase_table import Part, Phase
from rl_core.config.schema import core_schema


def test_every_phase_has_keys_that_exist():
    known = {
        key for layout in (None, SFT, RM) for key in (core_schema() if layout is None else core_schema(layout)).keys
    }
    assert set(KNOBS) == set(Phase)
    for keys in KNOBS.values():
        assert {key.removesuffix(" (rl rm)") for key in keys} <= known
    assert {section.split(".")[0] for section in SECTIONS.values()} <= {key.split(".")[0] for key in known}


def test_what_a_phase_does_not_need_could_leave():
    resident = {
        (Part.ACTOR, "parameters"),
        (Part.CRITIC, "optimizer"),
        (Part.ROLLOUT, "weights"),
        (Part.REF, "parameters"),
    }
    lines = advice(Phase.UPDATE_ACTOR, resident, recomputes=True)
    assert lines[0].startswith("lower actor_rollout_ref.actor.ppo_max_token_len_per_gpu or ")
    assert [line.split(":")[0] for line in lines[1:]] == [
        "set optimizer_offload=True in the engine's section below critic",
        "set param_offload=True in the engine's section below actor_rollout_ref.ref",
        "set actor_rollout_ref.rollout.free_cache_engine=True",
    ]


@pytest.mark.parametrize("phase", [None, Phase.CHECKPOINT])
def test_there_is_always_something_to_do(phase):
    (line,) = advice(phase, {(Part.ACTOR, "parameters")} if phase else set())
    assert "fewer weights on a device" in line
