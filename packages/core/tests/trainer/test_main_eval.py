import pytest
from rl_core.errors import ConfigError
from rl_core.trainer.main_eval import _writable


def test_finding_out_whether_a_file_can_be_written_touches_nothing(tmp_path):
    for name in ("x.jsonl", "x.partial"):
        (tmp_path / name).write_text(name)
    assert _writable(str(tmp_path / "x.jsonl")) == tmp_path / "x.jsonl"
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {
        "x.jsonl": "x.jsonl",
        "x.partial": "x.partial",
    }
    assert _writable(str(tmp_path / "new" / "y.jsonl")).parent.is_dir()


def test_a_folder_and_a_place_that_cannot_be_written_to_are_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"a folder\. Name a file in it"):
        _writable(str(tmp_path))
    with pytest.raises(ConfigError, match="which cannot be written"):
        _writable(str(tmp_path / "file" / "y.jsonl"))
