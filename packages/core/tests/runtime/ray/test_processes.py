from rl_core.runtime.ray.processes import read_stretches


def test_files_are_read_from_where_they_were_left_the_newest_bytes_first(tmp_path):
    out, err = tmp_path / "out", tmp_path / "err"
    out.write_text("read before\nnew\n")
    err.write_text("x" * 100 + "\nlast\n")
    found = read_stretches(
        [("actor/0", str(out), 12), ("actor/0", str(err), 0), ("actor/1", str(tmp_path / "missing"), 0)], most=6
    )
    assert found == {"actor/0": "new\n\nlast\n"}
