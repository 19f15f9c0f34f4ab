import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rl_core.contracts.weights import WeightSlice
from rl_core.resharding import digest as digest_module
from rl_core.resharding.digest import add_to_digest, bit_sum, bit_sums


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


def slow_bit_sum(tensor: torch.Tensor) -> int:
    """The definition, element by element."""
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return sum(tensor.reshape(-1).view(integers).tolist()) % 2**64


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.uint8, torch.bool, torch.bfloat16, torch.float16, torch.float32, torch.float64]
)
@given(size=st.integers(0, 300), seed=st.integers(0, 2**31))
def test_equals_the_definition(dtype, size, seed):
    draw = torch.Generator().manual_seed(seed)
    bits = torch.randint(0, 2 if dtype == torch.bool else 256, (size * dtype.itemsize,), generator=draw)
    tensor = bits.to(torch.uint8).view(dtype)
    assert bit_sum(tensor) == slow_bit_sum(tensor)


@pytest.mark.parametrize("extra", [-1, 0, 1])
@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float32])
def test_equals_the_definition_where_chunks_meet(dtype, extra):
    size = 2 * digest_module._CHUNK + extra
    tensor = torch.arange(size * dtype.itemsize, dtype=torch.int64).mul_(0x9E3779B1).to(torch.uint8).view(dtype)
    assert bit_sum(tensor) == slow_bit_sum(tensor)


def test_sums_of_many_tensors_are_those_of_each():
    tensors = [torch.randn(7, 3), torch.tensor([-1], dtype=torch.int64), torch.empty(0), torch.ones(5).bfloat16()]
    assert bit_sums(tensors) == [bit_sum(tensor) for tensor in tensors]
    assert bit_sums([]) == []


def test_a_conjugate_view_counts_as_what_it_shows():
    tensor = torch.tensor([1.0 + 2.0j])
    assert bit_sum(tensor.conj()) == bit_sum(tensor.conj().resolve_conj())
    assert bit_sum(tensor.conj()) != bit_sum(tensor)
