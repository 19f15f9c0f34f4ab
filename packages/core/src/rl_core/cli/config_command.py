"""``rl config show | generate``: what a run's configuration is, and the file of all keys with their help."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rl_core.config.compose import Composition, compose_leniently, join_errors
from rl_core.config.generate import distributions_in, generate_yaml, generated_file, key_help
from rl_core.config.layout import PPO, RM, SFT, Layout, layout_of_command
from rl_core.config.overrides import add_command_option, add_config_options
from rl_core.config.printing import config_to_yaml
from rl_core.errors import ConfigError, RlError
from rl_core.plugins import get_registry

_ENGINE_KEYS: Final = {
    PPO.name: ("actor_rollout_ref.actor.strategy", "actor_rollout_ref.rollout.name"),
    SFT.name: ("engine.strategy",),
    RM.name: ("engine.strategy",),
}
"""Keys whose plugin may be missing while one only looks."""


def main(argv: Sequence[str]) -> int:
    """Run ``rl config`` with its arguments; returns the exit status."""
    parser = argparse.ArgumentParser(prog="rl config", description="Show the configuration of a run.")
    commands = parser.add_subparsers(required=True, metavar="show|generate", dest="command")
    show = commands.add_parser("show", help="print the composed configuration")
    add_config_options(show)
    add_command_option(show)
    show.add_argument("--resolve", action="store_true", help="fill in interpolations and derived values")
    show.add_argument("--package", "-p", metavar="SECTION", help="print this section only")
    show.add_argument("--help-key", metavar="KEY", help="explain one key, or every key of a section")
    generate = commands.add_parser("generate", help="print all keys with their help as YAML")
    add_command_option(generate)
    generate.add_argument("--check", action="store_true", help="compare with the file instead; 1 if it differs")
    generate.add_argument("--write", action="store_true", help="write the file")
    generate.add_argument("--output", type=Path, metavar="FILE", help="which file")
    generate.add_argument(
        "--distributions", metavar="DIST,...", help="whose plugins to show; default: those the file shows now"
    )
    # Intermixed parsing has no subcommands, so the words before the first option are told apart by hand.
    arguments = list(argv)
    if arguments[:1] == ["show"]:
        return _show(show.parse_intermixed_args(arguments[1:]))
    return _generate(parser.parse_args(arguments))


def _show(options: argparse.Namespace) -> int:
    registry, layout = get_registry(), layout_of_command(options.command)
    composition = compose_leniently(
        options.overrides,
        config_name=options.config_name,
        config_path=options.config_path,
        config_dir=options.config_dir,
        registry=registry,
        layout=layout,
    )
    blocking = _blocking(composition, options.overrides, layout)
    config = composition.config
    if config is None or blocking:
        raise join_errors(blocking or composition.errors)
    if options.help_key:
        print(key_help(config.schema, options.help_key, registry))
        return 0
    for error in composition.errors:
        print(f"# {str(error).splitlines()[0]}", file=sys.stderr)
    print(config_to_yaml(config, resolve=options.resolve, package=options.package), end="")
    return 0


def _blocking(composition: Composition, overrides: Sequence[str], layout: Layout) -> list[RlError]:
    """What is wrong with what was given; a plugin that is missing by default does not keep one from looking."""
    named = {text.lstrip("+").partition("=")[0] for text in overrides}
    excused = tuple(key for key in _ENGINE_KEYS[layout.name] if key not in named)
    return [error for error in composition.errors if not str(error).startswith(excused or ("\0",))]


def _generate(options: argparse.Namespace) -> int:
    layout = layout_of_command(options.command)
    shown: Path = options.output or generated_file(layout)
    present = shown.read_text(encoding="utf-8") if shown.is_file() else ""
    names = options.distributions.split(",") if options.distributions else distributions_in(present)
    text = generate_yaml(get_registry(), names, layout)
    if options.check:
        if text == present:
            return 0
        anew = f"rl config generate --command {layout.command} --write"
        msg = f"{shown} differs from what the dataclasses say. Write it anew: {anew}"
        print(msg, file=sys.stderr)
        return 1
    if options.write:
        if not shown.parent.is_dir():
            msg = f"--output is {shown}, but there is no folder {shown.parent}."
            raise ConfigError(msg)
        shown.write_text(text, encoding="utf-8")
        return 0
    print(text, end="")
    return 0
