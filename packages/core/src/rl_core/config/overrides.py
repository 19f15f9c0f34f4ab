"""The command line: Hydra's options and Hydra's override grammar, with messages a person can act on."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from rl_core.config.layout import LAYOUTS, PPO, Layout
from rl_core.config.secrets import is_secret_path
from rl_core.errors import ConfigError

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

BASE_NAME: Final = PPO.name


@dataclass(frozen=True)
class CliRequest:
    """What a command line asks for."""

    overrides: tuple[str, ...]
    config_name: str = BASE_NAME
    config_path: str | None = None
    """Folder of ``config_name``, absolute or relative to the current folder."""

    config_dir: str | None = None
    """Further folder that configuration files are searched in."""

    cfg: str | None = None
    """``job``: print the composed configuration instead of running."""

    resolve: bool = False
    """Print with interpolations and derived values filled in."""

    package: str | None = None
    """Print this section only."""

    show_help: bool = False


@dataclass(frozen=True)
class ParsedOverride:
    """One override, ready for Hydra."""

    text: str
    """As given."""

    hydra_text: str
    """As passed on: additions and changes alike are forced, because ``compose`` itself checks every key."""

    key: str | None
    """Dotted key; None for config groups and Hydra's own settings."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        msg = f"{message}.\n  {self.format_usage().strip()}"
        raise ConfigError(msg)


def add_config_options(parser: argparse.ArgumentParser) -> None:
    """Add Hydra's options for choosing configuration files, and the overrides themselves.

    Without ``--config-name`` the option is None, which stands for the base name of the kind of run.
    """
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="overrides in Hydra's grammar")
    parser.add_argument("--config-name", "-cn", help="configuration file, without .yaml")
    parser.add_argument("--config-path", "-cp", help="folder of that file, relative to the current one")
    parser.add_argument("--config-dir", "-cd", help="further folder to search configuration files in")


def add_command_option(parser: argparse.ArgumentParser) -> None:
    """Add the option for the kind of run that a configuration is of."""
    names = [layout.command for layout in LAYOUTS]
    parser.add_argument("--command", default=PPO.command, metavar="|".join(names), help="whose configuration it is")


def parse_cli(argv: Sequence[str], layout: Layout = PPO) -> CliRequest:
    """Read a command line as Hydra users write it.

    Args:
        argv: arguments without the program.
        layout: the kind of run.

    Raises:
        ConfigError: an unknown option, or one that has no meaning here (``--multirun``).
    """
    options = _cli_parser(layout).parse_intermixed_args(list(argv))
    if options.multirun:
        msg = "--multirun was given, but one command is one run. Start one command for each set of values."
        raise ConfigError(msg)
    return CliRequest(
        overrides=tuple(options.overrides),
        config_name=options.config_name or layout.name,
        config_path=options.config_path,
        config_dir=options.config_dir,
        cfg=options.cfg,
        resolve=options.resolve,
        package=options.package,
        show_help=options.help,
    )


def cli_help(layout: Layout = PPO) -> str:
    """The text for ``--help``."""
    return _cli_parser(layout).format_help()


def _cli_parser(layout: Layout) -> _Parser:
    option = "" if layout is PPO else f" --command {layout.command}"
    parser = _Parser(
        prog=f"rl {layout.command}",
        add_help=False,
        allow_abbrev=False,
        epilog=f"All keys: rl config show{option} --help-key KEY",
    )
    add_config_options(parser)
    parser.add_argument("--cfg", "-c", choices=("job",), help="print the configuration instead of running")
    parser.add_argument("--resolve", action="store_true", help="with --cfg: fill in interpolations and derived values")
    parser.add_argument("--package", "-p", metavar="SECTION", help="with --cfg: this section only")
    parser.add_argument("--run", "-r", action="store_true", help="run; the default")
    parser.add_argument("--multirun", "-m", action="store_true", help="not supported: one command is one run")
    parser.add_argument("--help", "-h", action="store_true", help="show this")
    return parser


def parse_overrides(
    overrides: Sequence[str], search: Sequence[Path] = ()
) -> tuple[list[ParsedOverride], list[ConfigError]]:
    """Parse every override with Hydra's grammar.

    Args:
        overrides: such as ``trainer.nnodes=2``, ``+data.apply_chat_template_kwargs.x=1``, ``~key``.
        search: folders of configuration files, which may hold config groups.

    Returns:
        Those that parse, and one error for each that does not.
    """
    # Hydra's grammar costs as much to import as everything else here.
    from hydra.core.override_parser.overrides_parser import OverridesParser  # noqa: PLC0415 - loaded only to compose
    from hydra.errors import HydraException  # noqa: PLC0415 - loaded only to compose

    parser = OverridesParser.create()
    parsed, errors = [], []
    for text in overrides:
        try:
            override = parser.parse_override(text)
        except HydraException as error:
            errors.append(_unreadable(text, _reason(error), parser))
            continue
        try:
            parsed.append(_prepare(text, override, search))
        except ConfigError as error:
            errors.append(error)
    return parsed, errors


def _prepare(text: str, override: Override, search: Sequence[Path]) -> ParsedOverride:
    if override.is_sweep_override():
        msg = (
            f"{text} lists several values, which Hydra reads as one run each. Give one value; a list is written in "
            f"brackets: {shlex.quote(f'{override.key_or_group}=[...]')}; a value with a comma needs quotes inside: "
            f"{_quoted(text)}"
        )
        raise ConfigError(msg)
    key = override.key_or_group
    is_group = override.package is not None or "/" in key or any((folder / key).is_dir() for folder in search)
    if is_group or key.startswith("hydra.") or override.is_delete():
        return ParsedOverride(text, text, None)
    return ParsedOverride(text, f"++{text.lstrip('+')}", key)


def _unreadable(text: str, reason: str, parser: object) -> ConfigError:
    key, equals, value = text.partition("=")
    if not equals:
        return ConfigError(f"{text!r} is no override. Write KEY=VALUE, for example trainer.total_epochs=3.")
    shown = f"{key}=..." if is_secret_path(key.lstrip("+~")) else text
    lines = [f"the value of this override cannot be read: {shown}", f"  Hydra says: {reason}"]
    special = sorted({character for character in value if character in "=,~#()[]{}'\""})
    if special and shown == text:
        named = " ".join(special)
        lines.append(f"  A value with {named} needs quotes that reach Hydra: {_quoted(text)}")
    return ConfigError("\n".join(lines))


def _quoted(text: str) -> str:
    """The override with its value in quotes, as it has to be typed into a shell."""
    key, _, value = text.partition("=")
    # Characters escaped for the unquoted form need no backslash within quotes.
    inner = re.sub(r"\\([()\[\]{}:=,~#'\"\s])", r"\1", value).strip("\"'")
    inner = inner.replace("\\", "\\\\").replace('"', '\\"')
    return shlex.quote(f'{key}="{inner}"')


def _reason(error: Exception) -> str:
    return str(error.__cause__ or error).splitlines()[0].strip()
