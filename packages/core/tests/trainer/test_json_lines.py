from rl_core.trainer.json_lines import keep_up_to, put_aside, unused_name


def test_lines_of_later_steps_and_a_torn_one_go(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"step": 1}\n{"step": 3}\n{"step": 2}\n{"step": 2, "t')
    keep_up_to(path, 2)
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'
    assert [file.name for file in tmp_path.iterdir()] == ["x.jsonl"]


def test_an_earlier_run_is_put_aside_and_an_empty_file_stays(tmp_path):
    path = tmp_path / "x.jsonl"
    path.touch()
    put_aside(path)
    assert path.is_file()
    path.write_text("{}\n")
    put_aside(path)
    assert not path.exists()
    assert (tmp_path / "x.previous.1.jsonl").read_text() == "{}\n"


def test_no_earlier_run_replaces_another(tmp_path):
    path = tmp_path / "x.jsonl"
    (tmp_path / "x.previous.9.jsonl").touch()
    for run in ("a", "b"):
        path.write_text(run)
        put_aside(path)
    assert (tmp_path / "x.previous.10.jsonl").read_text() == "a"
    assert (tmp_path / "x.previous.11.jsonl").read_text() == "b"


def test_what_becomes_a_file_has_a_hidden_name_of_its_own(tmp_path):
    names = {unused_name(tmp_path / "x.jsonl") for _ in range(50)}
    assert len(names) == 50
    assert all(name.parent == tmp_path and name.name.startswith(".x.jsonl.") for name in names)


def test_what_is_not_there_is_left_alone(tmp_path):
    keep_up_to(tmp_path / "x.jsonl", 1)
    put_aside(tmp_path / "x.jsonl")
    assert list(tmp_path.iterdir()) == []
