import pytest
import torch
from rl_core.contracts.engine import EngineState
from rl_core.errors import RlError
from rl_engine.device_states import DeviceStates

PARAMETERS, GRADIENTS, OPTIMIZER = EngineState


def make():
    weights = [torch.arange(6.0), torch.arange(4.0)]
    moments: list = []
    states = DeviceStates()
    states.add(PARAMETERS, lambda: weights)
    states.add(OPTIMIZER, lambda: moments)
    return states, weights, moments


def test_what_leaves_is_gone_and_comes_back_into_the_same_tensors():
    states, weights, _ = make()
    views = [tensor.view(2, -1) for tensor in weights]
    states.offload({PARAMETERS})
    assert [tensor.untyped_storage().nbytes() for tensor in weights] == [0, 0]
    assert states.device_bytes() == 0
    assert states.resident() == {OPTIMIZER}
    states.onload({PARAMETERS})
    assert [view.tolist() for view in views] == [[[0, 1, 2], [3, 4, 5]], [[0, 1], [2, 3]]]
    assert states.device_bytes() == 40


def test_memory_shared_by_tensors_moves_once():
    whole = torch.arange(8.0)
    states = DeviceStates()
    states.add(PARAMETERS, lambda: [whole[:4], whole[4:], whole])
    assert states.device_bytes() == 32
    states.offload({PARAMETERS})
    states.onload({PARAMETERS})
    assert whole.tolist() == list(range(8))


def test_every_bit_survives():
    odd = torch.tensor([float("nan"), -0.0, float("inf"), 1e-45])
    half = torch.tensor([1.5], dtype=torch.bfloat16)
    states = DeviceStates()
    states.add(PARAMETERS, lambda: [odd, half])
    before = [odd.view(torch.int32).tolist(), half.view(torch.int16).tolist()]
    states.offload({PARAMETERS})
    states.onload({PARAMETERS})
    assert [odd.view(torch.int32).tolist(), half.view(torch.int16).tolist()] == before


def test_a_state_may_be_empty_and_is_looked_at_when_it_moves():
    states, _, moments = make()
    states.offload({OPTIMIZER})
    states.onload({OPTIMIZER})
    moments.append(torch.ones(3))
    states.offload({OPTIMIZER})
    assert moments[0].untyped_storage().nbytes() == 0
    states.onload({OPTIMIZER})
    assert moments[0].tolist() == [1, 1, 1]


def test_twice_is_once_and_unknown_states_are_ignored():
    states, weights, _ = make()
    states.offload({PARAMETERS, GRADIENTS})
    states.offload({PARAMETERS})
    states.onload({PARAMETERS, GRADIENTS})
    states.onload({PARAMETERS})
    assert weights[0].tolist() == [0, 1, 2, 3, 4, 5]


def test_what_is_needed_and_not_there_is_named():
    states, _, _ = make()
    states.require("a step", PARAMETERS, OPTIMIZER)
    states.offload({OPTIMIZER})
    with pytest.raises(RlError, match=r"a step needs optimizer on the device.*call onload\(\{optimizer\}\)"):
        states.require("a step", PARAMETERS, OPTIMIZER)
    with pytest.raises(RlError, match="a step needs gradients, which this engine does not have"):
        states.require("a step", GRADIENTS)


def test_nothing_is_left_after_clear():
    states, _, _ = make()
    states.offload({PARAMETERS})
    states.clear()
    assert states.resident() == frozenset()
    assert states.device_bytes() == 0
