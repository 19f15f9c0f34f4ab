from __future__ import annotations

import os
import subprocess
import sys

import pytest
from rl_core import __version__
from rl_core.cli.main import main
from rl_core.entry_point import report_errors
from rl_core.errors import ConfigError
from rl_core.plugins import CommandRecord


@pytest.fixture
def command(register, tmp_path, monkeypatch):
    """A subcommand `acme` whose module is written from the given source."""

    def command(source):
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, "acme_command", raising=False)
        (tmp_path / "acme_command.py").write_text(source)
        register("acme", CommandRecord(name="acme", target="acme_command:main", summary="Tells its arguments."))

    yield command
    sys.modules.pop("acme_command", None)


def test_a_command_gets_its_arguments_and_gives_the_exit_status(command, capsys):
    command("def main(argv):\n    print(argv)\n    return 7\n")
    assert main(["acme", "a=1", "--x"]) == 7
    assert capsys.readouterr().out == "['a=1', '--x']\n"


def test_help_lists_commands_of_plugins_too(command, capsys):
    command("")
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    commands = ["acme", "check", "config", "data", "eval", "export", "parity", "plugins", "rm", "sft", "train"]
    assert [line.split()[0] for line in out.splitlines()[3 : 3 + len(commands)]] == commands
    assert "--block-plugin DIST" in out
    assert max(map(len, out.splitlines())) <= 80


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"rl-core {__version__}\n"


def test_no_command_is_an_error(capsys):
    assert main([]) == 2
    assert "usage: rl" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["trian"], "command 'trian' is not known.\n  Did you mean: train (installed)?"),
        (["rows"], "command 'rows' is not installed.\n  Install it: pip install rl-agent"),
        (["zzzz"], "command 'zzzz' is not known."),
        (["--verbose", "train"], "option '--verbose' is not known before a command"),
        (["--block-plugin"], "--block-plugin needs the name of a distribution"),
        (["--block-plugin", "rl-core", "plugins", "list"], "RL_BLOCK_PLUGINS names rl-core"),
    ],
)
def test_expected_errors_are_text(argv, message, capsys):
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {message}")
    assert "Traceback" not in err


@pytest.mark.parametrize("argv", [["--traceback", "acme"], ["acme", "--traceback"]])
def test_traceback_on_request(command, capsys, argv):
    command("from rl_core.errors import ConfigError\ndef main(argv):\n    raise ConfigError(f'no {argv}')\n")
    assert main(argv) == 2
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert err.endswith("rl_core.errors.ConfigError: no []\n")


def test_bugs_keep_their_traceback(command):
    command("def main(argv):\n    return 1 // 0\n")
    with pytest.raises(ZeroDivisionError):
        main(["acme"])


@pytest.mark.parametrize("argv", [["--block-plugin", "acme-x", "acme"], ["acme", "--block-plugin=acme-x"]])
def test_block_plugin_reaches_this_process_and_its_children(argv, capsys, monkeypatch):
    monkeypatch.setenv("RL_BLOCK_PLUGINS", "other")
    monkeypatch.setenv("RL_PLUGINS", "acme")
    main(argv)
    assert os.environ["RL_BLOCK_PLUGINS"] == "other,acme-x"


def test_report_errors_serves_other_entry_points(capsys):
    def run(argv):
        if argv:
            msg = f"bad {argv}"
            raise ConfigError(msg)
        return 0

    assert report_errors(run, []) == 0
    assert report_errors(run, ["x"]) == 2
    assert capsys.readouterr().err == "error: bad ['x']\n"


@pytest.mark.heavy
@pytest.mark.parametrize("command", [["-m", "rl_core.cli"], ["-c", "from rl_core.cli.main import main; exit(main())"]])
def test_exit_status_of_the_process(command):
    run = subprocess.run([sys.executable, *command, "trian"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 2
    assert "Did you mean: train" in run.stderr
