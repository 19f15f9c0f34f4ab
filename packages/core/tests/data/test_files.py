import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from rl_core.data.files import plain, read_files, read_rows, without_none
from rl_core.errors import DataError


def test_json_lines_json_and_several_files(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n\n{"x": 2}\n')
    (tmp_path / "b.json").write_text(json.dumps([{"x": 3}]))

    assert read_rows([str(tmp_path / "a.jsonl"), str(tmp_path / "b.json")]) == [{"x": 1}, {"x": 2}, {"x": 3}]


def test_missing_file_names_what_is_beside_it(tmp_path):
    (tmp_path / "train.jsonl").write_text("{}")
    with pytest.raises(DataError, match=r"trian\.jsonl does not exist; its folder holds train\.jsonl"):
        read_rows(str(tmp_path / "trian.jsonl"))
    for number in range(12):
        (tmp_path / f"{number}.parquet").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(DataError, match=r"its folder holds train\.jsonl, 0\.parquet, (?!.*notes)"):
        read_rows(str(tmp_path / "trian.jsonl"))
    with pytest.raises(DataError, match="nor does its folder"):
        read_rows(str(tmp_path / "nowhere" / "x.jsonl"))


def test_broken_line_is_named(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n{"x": \n')
    with pytest.raises(DataError, match=r"a\.jsonl:2 is not valid JSON"):
        read_rows(str(tmp_path / "a.jsonl"))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", "", "no rows"),
        ("a.csv", "x", r"ends in '\.csv'"),
        ("a.json", '{"x": 1}', "must hold records"),
        ("a.jsonl", "3\n", "must hold records"),
    ],
)
def test_unusable_files(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        read_rows(str(tmp_path / name))


def test_none_is_dropped_from_mappings_at_any_depth_and_from_no_list():
    value = {"a": None, "b": [{"c": None, "d": 0}, None], "e": {"f": {}}, "g": '{"h": null}'}
    assert without_none(value) == {"b": [{"d": 0}, None], "e": {"f": {}}, "g": '{"h": null}'}


def test_only_parquet_rows_lose_the_fields_of_other_rows(tmp_path):
    rows = [{"x": {"a": 1}, "y": None}, {"x": {"b": None}, "y": 2}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_rows(str(tmp_path / "a.jsonl")) == rows

    table = pyarrow.Table.from_pylist([{"x": {"a": 1}, "y": None}, {"x": {"b": 3}, "y": 2}])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert table.to_pylist()[0] == {"x": {"a": 1, "b": None}, "y": None}
    # Columns stay, so that a message about a row names them all.
    assert read_rows(str(tmp_path / "a.parquet")) == [{"x": {"a": 1}, "y": None}, {"x": {"b": 3}, "y": 2}]


def test_files_keep_their_rows_apart(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n')
    (tmp_path / "b.jsonl").write_text("")
    files = [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]
    assert [tuple(file) for file in read_files(files)] == [(files[0], [{"x": 1}]), (files[1], [])]


@pytest.mark.parametrize(
    ("name", "message"), [("a.jsonl", "is not UTF-8 text"), ("a.parquet", "cannot be read as parquet")]
)
def test_bytes_that_are_something_else_are_named(tmp_path, name, message):
    (tmp_path / name).write_bytes(b"\xff\xfe\x00" * 9)
    with pytest.raises(DataError, match=rf"{name} {message}"):
        read_rows(str(tmp_path / name))


def test_b42_arrays_become_lists_and_their_numbers_python_numbers():
    value = {"a": np.array([{"b": np.int64(4)}, {"b": np.array([1.5])}], dtype=object), "c": b"x", "d": np.float32(0.5)}
    found = plain(value)
    assert found == {"a": [{"b": 4}, {"b": [1.5]}], "c": b"x", "d": 0.5}
    assert type(found["a"][0]["b"]) is int
