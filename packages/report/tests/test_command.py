import pytest
from rl_core.cli.main import main


def test_terminal_and_page(folder, capsys):
    assert main(["report", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "Mean reward rose from 0.2 to 0.9" in out
    assert out.rstrip().endswith(f"report: {folder}/report.html")
    assert (folder / "report.html").is_file()


def test_a_page_elsewhere_and_none(folder, tmp_path, capsys):
    assert main(["report", str(folder), "--html", str(tmp_path / "x.html")]) == 0
    assert (tmp_path / "x.html").is_file()
    assert main(["report", str(folder), "--no-html"]) == 0
    assert not (folder / "report.html").exists()
    assert "report:" not in capsys.readouterr().out.splitlines()[-1]


def test_bad_input_is_an_error_of_one_line(folder, capsys):
    assert main(["report", str(folder.parent)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {folder.parent} is not a run folder")


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_usage(arguments, capsys):
    with pytest.raises(SystemExit):
        main(["report", *arguments])
    captured = capsys.readouterr()
    assert "rl report" in captured.out + captured.err
