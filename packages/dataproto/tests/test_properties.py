"""Every row operation against numpy, on random batches of dense, jagged and object columns."""

from __future__ import annotations

import pickle

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_dataproto import DataProto, jagged_from_rows

CELLS = st.one_of(
    st.none(),
    st.text(max_size=3),
    st.floats(),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=1), st.one_of(st.none(), st.floats()), max_size=2),
    st.integers(0, 3).map(np.arange),
)


@st.composite
def batches(draw, min_rows=1):
    rows = draw(st.integers(min_rows, 7))
    lengths = draw(st.lists(st.integers(0, 4), min_size=rows, max_size=rows))
    cells = draw(st.lists(CELLS, min_size=rows, max_size=rows))
    dtype = draw(st.sampled_from([torch.int64, torch.float32, torch.bfloat16, torch.bool]))
    width = draw(st.integers(0, 3))
    return DataProto.from_dict(
        {
            "row": torch.arange(rows),
            "dense": torch.arange(rows * width).reshape(rows, width).to(dtype),
            "jagged": jagged_from_rows([torch.arange(n) + 10 * row for row, n in enumerate(lengths)]),
        },
        {"cell": cells, "number": np.arange(rows)},
        {"k": 1},
    )


def same_rows(result, source, numbers):
    """Compares through Python lists, so that no operation under test checks itself."""
    numbers = [int(number) for number in numbers]
    jagged = [row.tolist() for row in source.batch["jagged"].unbind()]
    dense = source.batch["dense"].tolist()
    assert result.batch["row"].tolist() == numbers
    assert result.non_tensor_batch["number"].tolist() == numbers
    assert result.batch["dense"].tolist() == [dense[number] for number in numbers]
    assert [row.tolist() for row in result.batch["jagged"].unbind()] == [jagged[number] for number in numbers]
    for cell, number in zip(result.non_tensor_batch["cell"], numbers, strict=True):
        assert cell is source.non_tensor_batch["cell"][number]
    assert len(result) == len(numbers)
    assert result.batch["dense"].dtype == source.batch["dense"].dtype


@given(batches(), st.integers(1, 9))
def test_chunk_and_concat_are_inverse(data, chunks):
    parts = data.chunk(chunks, allow_uneven=True)
    assert [len(part) for part in parts] == [len(part) for part in np.array_split(np.arange(len(data)), chunks)]
    same_rows(DataProto.concat(parts), data, range(len(data)))


@given(batches(), st.integers(1, 9))
def test_split_and_concat_are_inverse(data, size):
    same_rows(DataProto.concat(data.split(size)), data, range(len(data)))


@given(st.data())
def test_select_idxs_is_numpy_indexing(draw):
    data = draw.draw(batches())
    numbers = draw.draw(st.lists(st.integers(-len(data), len(data) - 1), max_size=9))
    expected = np.arange(len(data))[np.array(numbers, dtype=int)]
    same_rows(data.select_idxs(numbers), data, expected)
    mask = draw.draw(st.lists(st.booleans(), min_size=len(data), max_size=len(data)))
    same_rows(data[mask], data, np.arange(len(data))[np.array(mask)])


@given(batches(), st.slices(7))
def test_slice_is_python_slicing(data, cut):
    same_rows(data[cut], data, range(len(data))[cut])


@given(batches(), st.integers(0, 3), st.booleans())
def test_repeat_is_numpy_repeat_or_tile(data, times, interleave):
    rows = np.arange(len(data))
    same_rows(data.repeat(times, interleave), data, np.repeat(rows, times) if interleave else np.tile(rows, times))


@given(st.data())
def test_sample_level_repeat_is_numpy_repeat(draw):
    data = draw.draw(batches())
    counts = draw.draw(st.lists(st.integers(0, 3), min_size=len(data), max_size=len(data)))
    same_rows(data.sample_level_repeat(counts), data, np.repeat(np.arange(len(data)), counts))


@given(st.data())
def test_reorder_is_undone_by_the_inverse_permutation(draw):
    data = draw.draw(batches())
    order = draw.draw(st.permutations(range(len(data))))
    moved = DataProto.concat([data])
    moved.reorder(order)
    same_rows(moved, data, order)
    moved.reorder(np.argsort(order))
    same_rows(moved, data, range(len(data)))


@settings(max_examples=50)
@given(batches(), st.integers(0, 5), st.slices(7))
def test_pickle_round_trip_of_a_batch_and_of_its_parts(data, protocol, cut):
    assert pickle.loads(pickle.dumps(data, protocol)).equals(data)
    buffers = []
    stream = pickle.dumps(data[cut], protocol=5, buffer_callback=buffers.append)
    assert pickle.loads(stream, buffers=buffers).equals(data[cut])


@given(batches())
def test_union_with_its_own_pickle_changes_nothing(data):
    before = pickle.loads(pickle.dumps(data))
    assert data.union(pickle.loads(pickle.dumps(data))).equals(before)
