import builtins
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from rl_core.data.files import read_rows
from rl_core.data.hub import is_hub_name, parse_hub_name
from rl_core.errors import DataError


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("hf://openai/gsm8k:main/train", ("openai/gsm8k", "main", "train")),
        ("hf://openai/gsm8k", ("openai/gsm8k", None, None)),
        ("hf://openai/gsm8k/test", ("openai/gsm8k", None, "test")),
        ("hf://squad:plain_text/train[:10]", ("squad", "plain_text", "train[:10]")),
        ("hf://squad", ("squad", None, None)),
    ],
)
def test_names(name, parts):
    assert parse_hub_name(name) == parts


@pytest.mark.parametrize("name", ["hf://", "hf://a/b/c/d", "hf://a b"])
def test_other_names_are_refused(name):
    with pytest.raises(DataError, match="is no name of a Hub data set"):
        parse_hub_name(name)


def test_a_name_that_could_be_a_file_is_one(tmp_path):
    assert is_hub_name("owner/name", Path("owner/name"))
    assert not is_hub_name("owner/name.jsonl", Path("owner/name.jsonl"))
    assert not is_hub_name("train", Path("train"))
    (tmp_path / "owner").mkdir()
    assert not is_hub_name("owner/name", tmp_path / "owner" / "name")


def test_without_the_library(monkeypatch):
    found = builtins.__import__

    def without(name, *arguments, **options):
        if name == "datasets":
            msg = "No module named 'datasets'"
            raise ModuleNotFoundError(msg)
        return found(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DataError, match=r"hf://a/b is a Hub data set, which needs .* pip install 'rl-core\[hub\]'"):
        read_rows("hf://a/b")


@pytest.mark.heavy
def test_rows_of_a_data_set_in_a_folder(tmp_path, monkeypatch):
    # The library takes a folder of that name for the data set, so no network is needed.
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "me" / "things"
    folder.mkdir(parents=True)
    rows = [{"prompt": "a", "extra_info": {"x": 1}}, {"prompt": "b", "extra_info": {"y": "z"}}]
    for split in ("train", "test"):
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / f"{split}.parquet")
    assert read_rows("hf://me/things/train") == rows
    with pytest.raises(DataError, match=r"has the splits train, test; name one: hf://me/things/train"):
        read_rows("hf://me/things")
    (folder / "test.parquet").unlink()
    assert read_rows("hf://me/things") == rows
    with pytest.raises(DataError, match=r"hf://me/things/dev could not be loaded.*give files"):
        read_rows("hf://me/things/dev")
