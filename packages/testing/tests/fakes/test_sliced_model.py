from __future__ import annotations

import numpy as np
import pytest
import torch
from rl_core.contracts.rollout import RolloutState
from rl_testing.fakes import tiny_model
from rl_testing.fakes.model_slice import ModelSlice
from rl_testing.fakes.sliced_model import SlicedModel
from rl_testing.fakes.tiny_model import TinyConfig, init_weights

CONFIG = TinyConfig(vocab_size=11, hidden_size=6, num_layers=3)
IDS = [4, 0, 10, 10, 7]


def sliced(size, config=CONFIG):
    parts = [ModelSlice(config, rank, size) for rank in range(size)]
    for part in parts:
        part.wake(tuple(RolloutState))
        for name, tensor in init_weights(config).items():
            part.write(name, tuple((0, length) for length in tensor.shape), tensor)
        part.version = 1
    return SlicedModel(config, parts)


def walked(model):
    state, rows = model.empty(), []
    for token in IDS:
        state = model.extend(state, [token])
        rows.append(model.logits(state))
    return np.stack(rows)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_step_by_step_equals_all_at_once(size):
    whole = tiny_model.logits(init_weights(CONFIG), torch.tensor([IDS]), CONFIG.num_layers)[0]
    np.testing.assert_allclose(walked(sliced(size)), whole.numpy(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_slicing_changes_no_bit(size):
    np.testing.assert_array_equal(walked(sliced(size)), walked(sliced(1)))


def test_a_state_can_be_shared():
    model = sliced(2)
    prefix = model.extend(model.empty(), IDS)
    before = prefix.sums.copy()
    one, other = model.extend(prefix, [1]), model.extend(prefix, [2])
    np.testing.assert_array_equal(prefix.sums, before)
    assert not np.array_equal(one.hidden, other.hidden)
    np.testing.assert_array_equal(model.logits(one), model.logits(model.extend(model.empty(), [*IDS, 1])))


def test_a_version_is_everybodys():
    model = sliced(2)
    assert model.version() == 1
    model.slices[1].version = 2
    assert model.version() is None
    model.slices[0].version = 2
    assert model.version() == 2


def test_what_is_resident_is_resident_everywhere():
    model = sliced(2)
    model.slices[1].sleep(1)
    model.slices[1].wake([RolloutState.WEIGHTS])
    assert model.resident() == {RolloutState.WEIGHTS}
