import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rl_core.contracts.weights import WeightSlice
from rl_core.resharding.digest import add_to_digest, bit_sum


def test_bit_sum_of_known_patterns():
    assert bit_sum(torch.tensor([1, 2, 3], dtype=torch.int64)) == 6
    assert bit_sum(torch.tensor([-1], dtype=torch.int64)) == 2**64 - 1
    assert bit_sum(torch.tensor([1.0], dtype=torch.float32)) == 0x3F800000
    assert bit_sum(torch.tensor([1.0], dtype=torch.bfloat16)) == 0x3F80
    assert bit_sum(torch.empty(0, 4)) == 0


def test_signed_zero_and_nan_count():
    assert bit_sum(torch.tensor([0.0])) != bit_sum(torch.tensor([-0.0]))
    assert bit_sum(torch.tensor([float("nan")])) == 0x7FC00000


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.uint8, torch.complex64]
)
def test_additive_over_shards_and_independent_of_layout(dtype):
    tensor = torch.arange(24).reshape(4, 6).to(dtype)
    whole = bit_sum(tensor)

    assert sum(bit_sum(part) for part in tensor.chunk(3, dim=1)) % 2**64 == whole
    assert bit_sum(tensor.T) == whole


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20), st.data())
def test_any_changed_value_changes_the_sum(values, data):
    tensor = torch.tensor(values, dtype=torch.float32)
    changed = tensor.clone()
    index = data.draw(st.integers(0, len(values) - 1))
    changed[index] = torch.nextafter(changed[index], torch.tensor(float("inf")))
    if not torch.equal(changed.view(torch.int32), tensor.view(torch.int32)):
        assert bit_sum(changed) != bit_sum(tensor)


def test_shares_of_one_tensor_add_up():
    tensor = torch.randn(4, 6)
    digest: dict[str, int] = {}
    add_to_digest(digest, [WeightSlice("w", tensor[:2], ((0, 2), (0, 6)))])
    add_to_digest(digest, [WeightSlice("w", tensor[2:], ((2, 4), (0, 6))), WeightSlice("b", tensor[0])])
    assert digest == {"w": bit_sum(tensor), "b": bit_sum(tensor[0])}
