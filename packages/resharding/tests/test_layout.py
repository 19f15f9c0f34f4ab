from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rl_core.contracts.weights import WeightBucket, WeightSlice
from rl_core.errors import WeightSyncError
from rl_resharding.layout import ALIGNMENT, Handle, places_of, slices_in

SHAPES = st.lists(st.lists(st.integers(0, 5), max_size=3).map(tuple), max_size=6)
DTYPES = [torch.float32, torch.bfloat16, torch.int8, torch.float64, torch.bool]


@given(shapes=SHAPES, dtype=st.sampled_from(DTYPES))
def test_slices_lie_apart_and_in_line(shapes, dtype):
    bucket = WeightBucket(
        tuple(WeightSlice(str(place), torch.empty(shape, dtype=dtype)) for place, shape in enumerate(shapes))
    )
    places, size = places_of(bucket)
    assert all(place.start % ALIGNMENT == 0 for place in places)
    assert all(first.stop <= second.start for first, second in itertools.pairwise(places))
    assert size == max((place.stop for place in places), default=0)
    views = slices_in(torch.zeros(size, dtype=torch.uint8), places)
    assert [(view.tensor.shape, view.tensor.dtype) for view in views] == [
        (torch.Size(shape), dtype) for shape in shapes
    ]


def test_known_places():
    bucket = WeightBucket((WeightSlice("a", torch.zeros(3, 5)), WeightSlice("b", torch.zeros(2, dtype=torch.bfloat16))))
    places, size = places_of(bucket)
    assert [(place.start, place.stop) for place in places] == [(0, 60), (256, 260)]
    assert size == 260


def test_a_handle_says_everything(make_bucket):
    places, size = places_of(make_bucket(3))
    handle = Handle("shared_memory", {"path": "somewhere", "size": 9}, size, 3, places)
    assert Handle.decode(handle.encode()) == handle


@pytest.mark.parametrize("broken", [b"", b"\x80\x04]", b"{}", b"[1]", b'{"kind":"a"}'])
def test_what_is_no_handle_is_refused(broken):
    with pytest.raises(WeightSyncError, match="no handle"):
        Handle.decode(broken)


@pytest.mark.parametrize("slices", [[["w", "float32", [4], None, 0]], [["w", "int8", [1], None, -1]]])
def test_slices_outside_of_the_buffer_are_refused(slices, changed_handle):
    handle = Handle("shared_memory", {}, 8, 0, ()).encode()
    with pytest.raises(WeightSyncError, match="'w'"):
        Handle.decode(changed_handle(handle, slices=slices))
