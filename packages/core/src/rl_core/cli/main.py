"""``rl COMMAND ...``: finds the subcommand by its record and runs it.

A subcommand is a ``CommandRecord`` whose target is ``main(argv) -> int``, so that a plugin adds one without a change
here, and so that only the chosen one is imported.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from rl_core._version import __version__
from rl_core.cli.text import format_table
from rl_core.entry_point import EXPECTED_ERROR, report_errors
from rl_core.errors import ConfigError, PluginNotFoundError
from rl_core.plugins import get_registry, reset_registry
from rl_core.plugins.selection import BLOCK_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_USAGE: Final = "usage: rl [-h] [--version] [--traceback] [--block-plugin DIST] COMMAND ..."
_OPTIONS: Final = (
    ("-h, --help", "Show this, or the help of a command: rl COMMAND --help."),
    ("--version", "Show the version of rl-core."),
    ("--traceback", "Show the traceback of an expected error as well. May stand anywhere."),
    ("--block-plugin DIST", "Keep a distribution's plugins out, as RL_BLOCK_PLUGINS does. May stand anywhere."),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``rl`` and return its exit status: the command's own, or 2 for an expected error.

    Args:
        argv: arguments without the program's name; None takes those of the process.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    return report_errors(_dispatch, arguments)


def _dispatch(argv: list[str]) -> int:
    arguments = _block_plugins(argv)
    if not arguments:
        print(_help(), file=sys.stderr)
        return EXPECTED_ERROR
    command, *rest = arguments
    if command in ("-h", "--help"):
        print(_help())
        return 0
    if command == "--version":
        print(f"rl-core {__version__}")
        return 0
    if command.startswith("-"):
        msg = f"option {command!r} is not known before a command.\n  {_USAGE}"
        raise ConfigError(msg)
    try:
        run: Callable[[list[str]], int] = get_registry().load("command", command)
    except PluginNotFoundError as error:
        msg = f"{error}\n  See: rl --help"
        raise PluginNotFoundError(msg) from error.__cause__
    return run(rest)


def _block_plugins(argv: list[str]) -> list[str]:
    """Take ``--block-plugin`` out of the arguments and add it to the environment, where child processes see it too."""
    rest: list[str] = []
    blocked: list[str] = []
    arguments = iter(argv)
    for argument in arguments:
        option, separator, value = argument.partition("=")
        if option != "--block-plugin":
            rest.append(argument)
            continue
        name = value if separator else next(arguments, "")
        if not name or name.startswith("-"):
            msg = "--block-plugin needs the name of a distribution, as 'rl plugins list' shows it."
            raise ConfigError(msg)
        blocked.append(name)
    if blocked:
        already = os.environ.get(BLOCK_VARIABLE)
        os.environ[BLOCK_VARIABLE] = ",".join([already, *blocked] if already else blocked)
        reset_registry()
    return rest


def _help() -> str:
    registry = get_registry()
    commands = [(record.name, record.summary) for record in registry.records("command")]
    options = format_table([list(row) for row in _OPTIONS])
    return "\n".join([_USAGE, "", "commands:", format_table([list(row) for row in commands]), "", "options:", options])
