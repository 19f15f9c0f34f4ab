import pytest
from rl_core.trainer.ppo.dumps import write_json_lines


def test_one_line_a_record_and_nothing_beside_it(tmp_path):
    theirs = tmp_path / "x.partial"
    theirs.write_text("kept")
    write_json_lines(tmp_path / "x.jsonl", [{"a": 1}, {"a": float("nan")}])
    assert (tmp_path / "x.jsonl").read_text() == '{"a": 1}\n{"a": null}\n'
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.jsonl", "x.partial"]
    assert theirs.read_text() == "kept"


def test_a_failure_leaves_the_file_as_it_was(tmp_path):
    def records():
        yield {"a": 1}
        raise RuntimeError

    (tmp_path / "x.jsonl").write_text("before")
    with pytest.raises(RuntimeError):
        write_json_lines(tmp_path / "x.jsonl", records())
    assert (tmp_path / "x.jsonl").read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["x.jsonl"]
