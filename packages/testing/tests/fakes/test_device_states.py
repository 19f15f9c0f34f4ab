from __future__ import annotations

import pytest
import torch
from rl_core.contracts.engine import EngineState
from rl_core.errors import RlError
from rl_testing.fakes.device_states import DeviceStates

PARAMETERS, OPTIMIZER = EngineState.PARAMETERS, EngineState.OPTIMIZER


@pytest.fixture
def states():
    states = DeviceStates()
    states.put(PARAMETERS, {"a": torch.arange(3.0, dtype=torch.float64)})
    states.put(OPTIMIZER, {"a/exp_avg": torch.ones(2, dtype=torch.float32)})
    return states


def test_what_leaves_is_copied_and_dropped(states):
    old = states.get(PARAMETERS, "test")["a"]

    states.offload([PARAMETERS])
    old.fill_(7.0)

    assert states.resident() == {OPTIMIZER}
    assert states.device_bytes() == 8
    states.onload([PARAMETERS])
    assert states.get(PARAMETERS, "test")["a"].tolist() == [0.0, 1.0, 2.0]
    assert states.host == {}
    assert states.device_bytes() == 32


def test_moving_what_is_not_there_is_ignored(states):
    states.onload([PARAMETERS, EngineState.GRADIENTS])
    states.offload([EngineState.GRADIENTS])

    assert states.resident() == {PARAMETERS, OPTIMIZER}


def test_errors_tell_offloaded_from_absent(states):
    states.offload([OPTIMIZER])

    with pytest.raises(RlError, match="optimizer_step needs optimizer on the device, but they were offloaded"):
        states.get(OPTIMIZER, "optimizer_step")
    with pytest.raises(RlError, match="needs gradients, which this engine has not"):
        states.get(EngineState.GRADIENTS, "optimizer_step")


def test_new_tensors_replace_those_on_the_host(states):
    states.offload([OPTIMIZER])
    states.put(OPTIMIZER, {})
    states.onload([OPTIMIZER])

    assert states.get(OPTIMIZER, "test") == {}


def test_emptying_does_not_move(states):
    states.offload([OPTIMIZER])
    states.empty(OPTIMIZER)
    states.empty(PARAMETERS)

    assert states.resident() == {PARAMETERS}
    assert states.device_bytes() == 0
    states.onload([OPTIMIZER])
    assert states.get(OPTIMIZER, "test") == {}
