"""Which rows a batch holds: every operation on every kind of column, against row numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from rl_dataproto import (
    ColumnError,
    ConflictError,
    DataProto,
    DataProtoConfig,
    DataProtoItem,
    DataProtoTypeError,
    EmptyConcatError,
    MissingColumnError,
    RowCountError,
    RowIndexError,
    UnevenChunkError,
    jagged_from_rows,
)


@pytest.mark.parametrize(
    "cut",
    [
        *(slice(None), slice(1, 4), slice(-2, None), slice(4, 2), slice(0, 99), slice(None, None, 2)),
        *(slice(5, 0, -2), slice(None, None, -1), slice(1, 1), slice(-1, -7, -3), slice(6, 6)),
    ],
    ids=str,
)
def test_slice_follows_python(make_mixed, assert_rows, cut):
    data = make_mixed(6)
    assert_rows(data[cut], data, range(6)[cut])
    assert_rows(data.slice(cut.start, cut.stop, cut.step), data, range(6)[cut])


def test_slice_with_step_one_copies_no_tensor():
    data = DataProto.from_dict({"x": torch.arange(6), "j": jagged_from_rows([torch.arange(n) for n in (2, 1, 3)] * 2)})
    part = data.slice(2, 5)
    assert part.batch["x"].data_ptr() == data.batch["x"].data_ptr() + 2 * 8
    assert part.batch["j"].values().data_ptr() == data.batch["j"].values().data_ptr() + 3 * 8


@pytest.mark.parametrize(
    "index",
    [
        [3, 0, 0, -1],
        (1, 2),
        np.array([5, 4]),
        np.array([2], dtype=np.uint8),
        torch.tensor([-6, 5]),
        [],
        [True, False, False, True, False, True],
        np.array([False] * 6),
        torch.tensor([True] * 6),
        [np.bool_(True)] + [np.bool_(False)] * 5,
    ],
    ids=repr,
)
def test_select_idxs_takes_numbers_and_masks(make_mixed, assert_rows, index):
    data = make_mixed(6)
    expected = np.arange(6)[np.asarray(index, dtype=None if len(index) else np.int64)]
    assert_rows(data.select_idxs(index), data, expected)
    assert_rows(data[index], data, expected)


@pytest.mark.parametrize(
    ("index", "error", "words"),
    [
        ([6], RowIndexError, "Row 6 was asked of a batch with 6 rows"),
        ([0, -7], RowIndexError, "Row -7"),
        ([True, False], RowIndexError, "length 2 was used on 6 rows"),
        ([0.0, 1.0], DataProtoTypeError, "float64"),
        ([True, 1], DataProtoTypeError, "mixes 1 booleans"),
        (torch.tensor([1, 0, 1, 0, 1, 0], dtype=torch.uint8), DataProtoTypeError, "uint8"),
        (np.zeros((2, 2), int), DataProtoTypeError, r"shape \(2, 2\)"),
        ({1, 2}, DataProtoTypeError, "a set"),
    ],
)
def test_select_idxs_refuses(make_mixed, index, error, words):
    with pytest.raises(error, match=words):
        make_mixed(6).select_idxs(index)


def test_B06_boolean_mask_counts_its_true_entries():
    data = DataProto.from_dict({"id": torch.arange(5)}, {"s": list("abcde")})
    mask = [True, False, True, True, False]
    for form in (mask, np.array(mask), torch.tensor(mask)):
        kept = data[form]
        assert len(kept) == 3
        assert kept.batch.batch_size == torch.Size([3])
        assert kept.batch["id"].tolist() == [0, 2, 3]
        assert kept.non_tensor_batch["s"].tolist() == ["a", "c", "d"]
    none = data[[False] * 5]
    assert len(none) == 0
    assert list(none) == []
    assert list(none.make_iterator(2, epochs=1)) == []
    assert DataProto.concat([none, data]).batch["id"].tolist() == [0, 1, 2, 3, 4]
    assert len(DataProto.concat([none, none])) == 0


def test_one_row_is_an_item_with_its_own_meta(make_mixed):
    data = make_mixed(6, metrics={"loss": 1.0})
    item = data[-4]
    assert isinstance(item, DataProtoItem)
    assert item.batch["ids"].tolist() == [6, 7, 8]
    assert item.batch["tokens"].tolist() == [20, 21, 22]
    assert item.batch["positions"].shape == (3, 3)
    assert item.non_tensor_batch["cell"] == [1, 2]
    assert item.non_tensor_batch["image"].rows.tolist() == [1002]
    item.meta_info["metrics"]["loss"] = 2.0
    assert data.meta_info["metrics"]["loss"] == 1.0
    assert data[np.int64(1)].non_tensor_batch["uid"] == "u1"
    assert data[torch.tensor(1)].non_tensor_batch["uid"] == "u1"
    assert [row.non_tensor_batch["uid"] for row in data] == ["u0", "u1", "u2", "u3", "u4", "u5"]


@pytest.mark.parametrize("index", ["ids", 1.5, None, True])
def test_a_batch_is_not_indexed_by(make_mixed, index):
    with pytest.raises(DataProtoTypeError, match="use a row number"):
        make_mixed(2)[index]


def test_a_row_outside_the_batch_is_an_index_error(make_mixed):
    with pytest.raises(IndexError, match="Row 2 was asked of a batch with 2 rows"):
        make_mixed(2)[2]


def test_reorder_permutes_in_place(make_mixed, assert_rows):
    data, before = make_mixed(6), make_mixed(6)
    held = data.batch
    assert data.reorder(torch.tensor([5, 0, 4, 1, 3, 2])) is None
    assert_rows(data, before, [5, 0, 4, 1, 3, 2])
    assert held["ids"].tolist() == before.batch["ids"].tolist()


@pytest.mark.parametrize("index", [[0, 1, 2], [0, 0, 1, 2, 3, 4], list(range(7))[1:]])
def test_reorder_needs_a_permutation(make_mixed, index):
    with pytest.raises((RowCountError, RowIndexError)):
        make_mixed(6).reorder(index)


@pytest.mark.parametrize("times", [0, 1, 3])
def test_repeat(make_mixed, assert_rows, times):
    data = make_mixed(4)
    assert_rows(data.repeat(times), data, np.repeat(np.arange(4), times))
    assert_rows(data.repeat(times, interleave=False), data, np.tile(np.arange(4), times))


def test_repeat_keeps_the_device_and_refuses_negative_times():
    data = DataProto.from_dict({"x": torch.arange(2)}).to("cpu")
    assert data.repeat(2).batch.device == torch.device("cpu")
    with pytest.raises(RowCountError, match="repeat_times=-1"):
        data.repeat(-1)


@pytest.mark.parametrize("form", [list, tuple, np.array, torch.tensor])
def test_sample_level_repeat(make_mixed, assert_rows, form):
    data = make_mixed(4)
    assert_rows(data.sample_level_repeat(form([2, 0, 1, 3])), data, [0, 0, 2, 3, 3, 3])


@pytest.mark.parametrize(
    ("counts", "error", "words"),
    [
        ([1, 2], RowCountError, "4 rows"),
        ([1, 1, -2, 1], RowCountError, "-2 was given for row 2"),
        ([1.5, 1, 1, 1], DataProtoTypeError, "float64"),
    ],
)
def test_sample_level_repeat_refuses(make_mixed, counts, error, words):
    with pytest.raises(error, match=words):
        make_mixed(4).sample_level_repeat(counts)


@pytest.mark.parametrize("chunks", [1, 2, 3, 6])
def test_chunk_then_concat_is_the_batch(make_mixed, assert_rows, chunks):
    data = make_mixed(6)
    parts = data.chunk(chunks)
    assert [len(part) for part in parts] == [6 // chunks] * chunks
    assert_rows(parts[-1], data, range(6 - 6 // chunks, 6))
    assert DataProto.concat(parts).equals(data)


@pytest.mark.parametrize(("rows", "chunks", "sizes"), [(124, 15, [9] * 4 + [8] * 11), (50, 12, [5] * 2 + [4] * 10)])
def test_B01_chunk_count_that_does_not_divide(rows, chunks, sizes):
    data = DataProto.from_dict({"x": torch.arange(rows)}, {"uid": [f"u{row}" for row in range(rows)]})
    with pytest.raises(UnevenChunkError, match=f"{rows} rows.*{chunks} equal chunks"):
        data.chunk(chunks)
    parts = data.chunk(chunks, allow_uneven=True)
    assert [len(part) for part in parts] == sizes
    for part in parts:
        assert part.non_tensor_batch["uid"].tolist() == [f"u{row}" for row in part.batch["x"].tolist()]
    assert DataProto.concat(parts).equals(data)


def test_chunk_of_fewer_rows_than_chunks():
    data = DataProto.from_dict({"x": torch.arange(2)}, {"uid": ["a", "b"]})
    assert [len(part) for part in data.chunk(4, allow_uneven=True)] == [1, 1, 0, 0]
    with pytest.raises(RowCountError, match="0 chunks"):
        data.chunk(0)


def test_auto_padding_allows_uneven_chunks(monkeypatch):
    marked = DataProto.from_dict({"x": torch.arange(5)}, auto_padding=True)
    assert marked.is_padding_enabled()
    assert [len(part) for part in marked.chunk(3)] == [2, 2, 1]
    plain = DataProto.from_dict({"x": torch.arange(5)})
    assert not plain.is_padding_enabled()
    monkeypatch.setenv("RL_AUTO_PADDING", "TRUE")
    assert plain.is_padding_enabled()
    assert [len(part) for part in plain.chunk(3)] == [2, 2, 1]
    assert DataProtoConfig.auto_padding_key in marked.meta_info


def test_split_leaves_the_rest_in_the_last_part(make_mixed, assert_rows):
    data = make_mixed(6)
    parts = data.split(4)
    assert_rows(parts[0], data, range(4))
    assert_rows(parts[1], data, [4, 5])
    assert data[:0].split(4) == []
    with pytest.raises(RowCountError, match="0 rows"):
        data.split(0)


@pytest.mark.parametrize(("candidate", "source"), [("first", 0), ("last", 3), ("", 3)])
def test_padding_copies_one_row_in_place(make_mixed, assert_rows, candidate, source):
    data, before = make_mixed(4), make_mixed(4)
    data.padding(2, candidate)
    assert_rows(data, before, [0, 1, 2, 3, source, source])
    data.padding(0)
    assert len(data) == 6


def test_padding_refuses(make_mixed):
    with pytest.raises(RowCountError, match="0 rows"):
        make_mixed(2)[:0].padding(1)
    with pytest.raises(RowCountError, match="-1"):
        make_mixed(2).padding(-1)
    with pytest.raises(DataProtoTypeError, match="'middle'"):
        make_mixed(2).padding(1, "middle")


def test_unfold_column_chunks_cuts_one_column_and_repeats_the_others(make_mixed):
    data = make_mixed(2)
    data.union(DataProto.from_dict({"pair": torch.arange(8).reshape(2, 4)}))
    out = data.unfold_column_chunks(2, split_keys=["pair"])
    assert len(out) == 4
    assert out.batch["pair"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert out.batch["ids"].tolist() == [[0, 1, 2], [0, 1, 2], [3, 4, 5], [3, 4, 5]]
    assert [row.tolist() for row in out.batch["tokens"].unbind()] == [[0], [0], [], []]
    assert out.non_tensor_batch["uid"].tolist() == ["u0", "u0", "u1", "u1"]
    assert out.non_tensor_batch["image"].rows.tolist() == [1000, 1000, 1001, 1001]


def test_unfold_column_chunks_of_all_tensor_columns_repeats_the_others():
    data = DataProto.from_dict({"x": torch.arange(8).reshape(2, 4)}, {"uid": ["a", "b"]})
    out = data.unfold_column_chunks(2)
    assert out.batch["x"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert out.non_tensor_batch["uid"].tolist() == ["a", "a", "b", "b"]
    only = DataProto.from_dict(non_tensors={"m": np.arange(4).reshape(1, 4), "uid": ["a"]})
    assert only.unfold_column_chunks(2, "m").non_tensor_batch["m"].tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("keys", "split", "error", "words"),
    [
        (["tokens"], 2, ColumnError, "'tokens'"),
        (["flag"], 2, ColumnError, "'flag'"),
        (["ids"], 2, ColumnError, "2 divides"),
        (["no"], 1, MissingColumnError, "No column 'no'"),
        (["ids"], 0, RowCountError, "n_split=0"),
    ],
)
def test_unfold_column_chunks_refuses(make_mixed, keys, split, error, words):
    with pytest.raises(error, match=words):
        make_mixed(2).unfold_column_chunks(split, keys)


def test_concat_needs_something():
    with pytest.raises(EmptyConcatError, match="no batch"):
        DataProto.concat([])
    with pytest.raises(DataProtoTypeError, match="NoneType as part 1"):
        DataProto.concat([DataProto(), None])


@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        ({"x": torch.zeros(1)}, {"y": torch.zeros(1)}, r"lacks tensor columns \['x'\] and adds \['y'\]"),
        ({"x": torch.zeros(1)}, {"x": torch.zeros(1, dtype=torch.int64)}, "torch.float32.*part 1"),
        ({"x": torch.zeros(1, 2)}, {"x": torch.zeros(1, 3)}, r"\(2,\).*\(3,\)"),
        ({"x": torch.zeros(1, 2)}, {"x": jagged_from_rows([torch.zeros(2)])}, "dense tensor in part 0 and a jagged"),
        (
            {"x": jagged_from_rows([torch.zeros(2)])},
            {"x": jagged_from_rows([torch.zeros(2, 2)])},
            r"\(\) torch.float32.*\(2,\)",
        ),
    ],
)
def test_concat_names_what_differs(left, right, words):
    with pytest.raises(ColumnError, match=words):
        DataProto.concat([DataProto.from_dict(left), DataProto.from_dict(right)])


def test_concat_of_arrays_keeps_values():
    def one(column):
        return DataProto.from_dict(non_tensors={"c": column})

    both = DataProto.concat([one(np.array([1, 2])), one(np.array([0.5]))])
    assert both.non_tensor_batch["c"].tolist() == [1.0, 2.0, 0.5]
    mixed = DataProto.concat([one(np.array([1, 2])), one(np.array(["a"]))])
    assert mixed.non_tensor_batch["c"].tolist() == [1, 2, "a"]
    ragged = np.empty((1, 2), dtype=object)
    ragged[:] = "r"
    shapes = DataProto.concat([one(ragged), one(["s"])])
    assert [list(cell) for cell in shapes.non_tensor_batch["c"]] == [["r", "r"], ["s"]]
    with pytest.raises(ColumnError, match=r"\(1, 2\), \(1,\)"):
        DataProto.concat([one(np.zeros((1, 2))), one(np.zeros(1))])


def test_concat_of_parts_without_rows_and_columns_joins_their_metadata():
    parts = [DataProto(meta_info={"metrics": {"loss": value}}) for value in (1.0, 2.0)]
    assert DataProto.concat(parts).meta_info == {"metrics": {"loss": [1.0, 2.0]}}
    data = DataProto.from_dict({"x": torch.arange(2)})
    both = DataProto.concat([parts[0], data])
    assert both.batch["x"].tolist() == [0, 1]
    assert both.meta_info == {"metrics": {"loss": [1.0]}}


def test_concat_of_one_part_has_its_own_dictionaries(make_mixed):
    data = make_mixed(2, stop={"ids": [1]})
    alone = DataProto.concat([data])
    alone.meta_info["stop"]["ids"].append(2)
    alone.non_tensor_batch["new"] = np.arange(2)
    assert data.meta_info["stop"] == {"ids": [1]}
    assert "new" not in data.non_tensor_batch


@pytest.mark.parametrize(
    "make_parts",
    [
        lambda data: data.chunk(2),
        lambda data: data.split(3),
        lambda data: [data[::2], data[1:]],
        lambda data: [data.repeat(2), data.sample_level_repeat([1] * 6)],
        lambda data: [data.select(), data.select(batch_keys=["ids"])],
        lambda data: list(data.make_iterator(3, 1)),
        lambda data: [data.unfold_column_chunks(3, "ids"), data.clone()],
        lambda data: [DataProto.concat([data]), data.select_idxs([0])],
        lambda data: list(itertools.islice(data, 2)),
    ],
    ids=["chunk", "split", "slice", "repeat", "select", "iterator", "unfold", "concat", "item"],
)
def test_metadata_never_leaks_between_parts(make_mixed, make_parts):
    data = make_mixed(6, timing={"gen": 1.0}, tags=["a"])
    first, second = make_parts(data)
    first.meta_info["timing"]["gen"] = 99.0
    first.meta_info["tags"].append("b")
    first.meta_info["new"] = 1
    for other in (data, second):
        assert other.meta_info["timing"] == {"gen": 1.0}
        assert other.meta_info["tags"] == ["a"]
        assert "new" not in other.meta_info


def test_B05_concat_survives_timing_that_differs_in_the_last_digits():
    def part(gen, temperature):
        return DataProto.from_dict(
            {"x": torch.zeros(1)}, meta_info={"timing": {"gen": gen}, "temperature": temperature}
        )

    joined = DataProto.concat([part(12.50000763, 1.0), part(12.50001526, 1.0)])
    assert joined.meta_info == {"timing": {"gen": 12.50001526}, "temperature": 1.0}
    with pytest.raises(ConflictError, match=r"'temperature' is 1\.0 in part 0 and 0\.7 in part 1"):
        DataProto.concat([part(12.5, 1.0), part(12.5, 0.7)])


def test_iterator_goes_over_all_rows_each_epoch(make_mixed, assert_rows):
    data = make_mixed(6)
    parts = list(data.make_iterator(mini_batch_size=2, epochs=2))
    assert len(parts) == 6
    assert_rows(parts[4], data, [2, 3])


def test_iterator_order_depends_on_the_seed_alone(make_mixed):
    data = make_mixed(6)

    def order(seed):
        parts = data.make_iterator(3, epochs=2, seed=seed, dataloader_kwargs={"shuffle": True})
        return [part.non_tensor_batch["uid"].tolist() for part in parts]

    first = order(1)
    torch.manual_seed(5)
    assert order(1) == first
    assert order(2) != first
    assert sorted(first[0] + first[1]) == sorted(first[2] + first[3]) == [f"u{row}" for row in range(6)]
    # The order of torch's own DataLoader for this seed, so that runs can be compared with others.
    generator = torch.Generator().manual_seed(1)
    loader = torch.utils.data.DataLoader(range(6), batch_size=3, shuffle=True, generator=generator, collate_fn=list)
    assert first[:2] == [[f"u{row}" for row in rows] for rows in loader]


def test_iterator_without_shuffling_leaves_the_global_generator_alone(make_mixed):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    list(make_mixed(4).make_iterator(2, 1))
    assert torch.equal(torch.get_rng_state(), before)


def test_iterator_refuses_at_once(make_mixed):
    data = make_mixed(6)
    with pytest.raises(UnevenChunkError, match=r"6 rows.*mini-batches of 4, 2 are"):
        data.make_iterator(4, 1)
    assert [len(part) for part in data.make_iterator(4, 1, dataloader_kwargs={"drop_last": True})] == [4]
    with pytest.raises(DataProtoTypeError, match="'batch_size'"):
        data.make_iterator(2, 1, dataloader_kwargs={"batch_size": 3})
    with pytest.raises(RowCountError, match="mini_batch_size=0"):
        data.make_iterator(0, 1)


def test_columns_of_equal_lengths_can_be_added_after_every_operation(make_mixed):
    data = make_mixed(6)
    others = {name: [] for name in ("non_tensor_batch_keys", "meta_info_keys")}
    merged = data.select(["tokens"]).union(make_mixed(6).select(["log_probs"], **others))
    for batch in (data, data[1:4], data.repeat(2), DataProto.concat(data.chunk(3)), merged):
        total = batch.batch["tokens"] + batch.batch["log_probs"]
        assert total.values().abs().sum() == 0


def test_cut_deals_parts_of_any_size(make_mixed, assert_rows):
    batch = make_mixed(5)
    parts = batch.cut([0, 2, 2, 5])
    assert [len(part) for part in parts] == [2, 0, 3]
    assert_rows(parts[0], batch, [0, 1])
    assert_rows(parts[2], batch, [2, 3, 4])


@pytest.mark.parametrize("bounds", [[], [0], [0, 4], [1, 5], [0, 3, 2, 5]])
def test_cut_refuses_bounds_that_lose_or_repeat_rows(make_mixed, bounds):
    with pytest.raises(RowCountError, match="5 rows were to be cut"):
        make_mixed(5).cut(bounds)
