"""From a command line to ``fit``, for every kind of run on a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rl_core.config import parse_cli
from rl_core.config.check import check_config
from rl_core.config.compose import compose_command
from rl_core.config.printing import cfg_text
from rl_core.plugins import get_registry

if TYPE_CHECKING:
    from rl_core.config import Composed, Layout

Train = Callable[["Composed"], Path]
"""Trains as configured; returns the run folder."""


def run_command(argv: Sequence[str], layout: Layout, usage: str, run: Callable[[Composed], Path]) -> int:
    """Answer ``--help`` and ``--cfg``, or compose the configuration from ``argv`` and train.

    Args:
        argv: of the command.
        layout: of its configuration.
        usage: what ``--help`` prints.
        run: checks and trains a composed configuration.
    """
    request = parse_cli(argv, layout)
    if request.show_help:
        print(usage)  # noqa: T201 - what was asked for
        return 0
    if request.cfg:
        print(cfg_text(request, layout=layout), end="")  # noqa: T201 - what was asked for
        return 0
    run(compose_command(request, layout))
    return 0


def run_checked(composed: Composed, trainer: Callable[[], Train]) -> Path:
    """Check the configuration, then train; everything that was started is ended, also after a failure.

    Args:
        composed: the configuration.
        trainer: imports what trains; called after the check, so that a wrong key is reported before torch is loaded.

    Returns:
        The run folder.

    Raises:
        ConfigError: the run could not work; nothing was started.
    """
    report = check_config(composed, None, get_registry())
    report.raise_if_failed()
    for line in report.start_lines():
        print(line)  # noqa: T201 - what the run does differently from what was asked stands above its first step
    from rl_core.runtime.launch import launch  # noqa: PLC0415 - heavy

    return launch(composed.tree, partial(trainer(), composed))
