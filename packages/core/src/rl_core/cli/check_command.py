"""``rl check KEY=VALUE ...``: explain a configuration without allocating anything."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_core.config.check import TOPICS, Report, check_config
from rl_core.config.compose import Composition, compose_leniently
from rl_core.config.layout import layout_of_command
from rl_core.config.overrides import add_command_option, add_config_options
from rl_core.plugins import get_registry

if TYPE_CHECKING:
    from rl_core.config.layout import RunTree

_WIDTH = 100


def main(argv: Sequence[str]) -> int:
    """Run ``rl check``; returns 0 when the run could start, 2 when something is wrong."""
    parser = argparse.ArgumentParser(prog="rl check", description="Explain a configuration before it runs.")
    add_config_options(parser)
    add_command_option(parser)
    parser.add_argument("--dataset-size", type=int, metavar="ROWS", help="training rows, to work out the steps")
    options = parser.parse_intermixed_args(list(argv))
    registry = get_registry()
    composition = compose_leniently(
        options.overrides,
        config_name=options.config_name,
        config_path=options.config_path,
        config_dir=options.config_dir,
        registry=registry,
        layout=layout_of_command(options.command),
    )
    report = Report()
    if composition.config is not None:
        size = options.dataset_size
        if size is None:
            size = count_rows(composition.config.tree)
        report = check_config(composition.config, None, registry, size)
    print(render(composition, report))
    return 2 if composition.errors or report.errors or report.blockers else 0


def render(composition: Composition, report: Report) -> str:
    """The report as text: what the run does, what has no effect, warnings, errors, verdict."""
    blocks = []
    for topic in TOPICS:
        lines = report.lines(topic)
        if lines:
            blocks.append("\n".join([topic, *map(_item, lines)]))
    errors = [*map(str, composition.errors), *map(str, report.errors)]
    if report.warnings:
        blocks.append("\n".join(["warnings", *(_item(str(warning)) for warning in report.warnings)]))
    if report.blockers:
        blocks.append("\n".join(["cannot be placed", *(_item(str(blocker)) for blocker in report.blockers)]))
    if errors:
        blocks.append("\n".join(["errors", *map(_item, errors)]))
    verdict = "the run would not start." if errors or report.blockers else "ok."
    if errors:
        verdict = f"{len(errors)} error{'' if len(errors) == 1 else 's'}, {verdict}"
    return "\n\n".join([*blocks, verdict])


def count_rows(tree: RunTree) -> int | None:
    """Training rows, where that can be told without reading more than lines: JSON Lines files.

    Args:
        tree: composed configuration.

    Returns:
        The number of rows before any filter, limited by ``data.train_max_samples``; None when it is not known.
    """
    files = tree.data.train_files
    paths = [Path(str(file)).expanduser() for file in _as_list(files)]
    if not paths or not all(path.suffix == ".jsonl" and path.is_file() for path in paths):
        return None
    rows = sum(_count_lines(path) for path in paths)
    most = tree.data.train_max_samples
    return rows if most < 0 else min(rows, most)


def _as_list(files: Any) -> list[Any]:
    return list(files) if isinstance(files, list | tuple) else [files]


def _count_lines(path: Path) -> int:
    with path.open("rb") as lines:
        return sum(1 for line in lines if line.strip())


def _item(text: str) -> str:
    first, *rest = text.splitlines() or [""]
    wrapped = textwrap.fill(
        first, _WIDTH, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False, break_long_words=False
    )
    return "\n".join([wrapped, *(f"    {line}" for line in rest)])
