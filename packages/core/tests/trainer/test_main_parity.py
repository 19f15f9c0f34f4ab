import pytest
from rl_core.errors import CheckpointError, ConfigError
from rl_core.trainer.main_parity import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prompts", "0"], "'0' is no whole number from 1 on"),
        (["--limit", "-1"], "'-1' is no number above 0"),
        (["--limit", "x"], "'x' is no number above 0"),
        (["one", "two"], "takes one CHECKPOINT; it got one two"),
        (["one", "--config-name", "x"], "CHECKPOINT is one and a configuration file is named too"),
        (["--frob"], "unrecognized arguments: --frob"),
    ],
)
def test_arguments_that_cannot_be(arguments, message):
    with pytest.raises(ConfigError, match=message):
        main(arguments)


def test_what_is_no_checkpoint(tmp_path):
    with pytest.raises(CheckpointError, match="no such folder"):
        main([str(tmp_path / "gone")])


def test_help(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "Exit status: 0 the gap is within its limit" in text
    assert max(map(len, text.splitlines())) <= 100
