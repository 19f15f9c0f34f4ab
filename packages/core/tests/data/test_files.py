import json

import pytest
from rl_core.data.files import read_rows
from rl_core.errors import DataError


def test_json_lines_json_and_several_files(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n\n{"x": 2}\n')
    (tmp_path / "b.json").write_text(json.dumps([{"x": 3}]))

    assert read_rows([str(tmp_path / "a.jsonl"), str(tmp_path / "b.json")]) == [{"x": 1}, {"x": 2}, {"x": 3}]


def test_missing_file_names_what_is_beside_it(tmp_path):
    (tmp_path / "train.jsonl").write_text("{}")
    with pytest.raises(DataError, match=r"trian\.jsonl does not exist; its folder holds train\.jsonl"):
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
