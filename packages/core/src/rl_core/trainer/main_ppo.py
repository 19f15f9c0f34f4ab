"""``python -m rl_core.trainer.main_ppo key=value ...`` (also ``rl train``): from a command line to ``fit``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from rl_core.config import compose_request, parse_cli
from rl_core.config.check import check_config
from rl_core.config.printing import cfg_text
from rl_core.entry_point import report_errors
from rl_core.plugins import get_registry

if TYPE_CHECKING:
    from rl_core.config import Config


_USAGE = """rl train KEY=VALUE ...        train with PPO, GRPO or their kin

  --cfg job                   print the composed configuration and stop
  --config-name, --config-path    take a configuration file instead of the defaults
  --traceback                 show the traceback of an expected error as well

Keys: rl config show --help-key SECTION.  Before a run: rl check KEY=VALUE ..."""


def run_ppo(config: Config) -> None:
    """Check the configuration, then run the controller: here, or as an actor of the runtime's cluster.

    Raises:
        ConfigError: the run could not work; nothing was started.
    """
    report = check_config(config, None, get_registry())
    report.raise_if_failed()
    for line in report.start_lines():
        print(line)  # noqa: T201 - what the run does differently from what was asked stands above its first step
    # Heavy imports stand here so that a wrong key is reported before torch is loaded.
    from rl_core.runtime.launch import launch  # noqa: PLC0415
    from rl_core.trainer.task_runner import TaskRunner  # noqa: PLC0415

    launch(config.tree, partial(TaskRunner().run, config))


def main(argv: Sequence[str]) -> int:
    """Compose the configuration from ``argv`` and train; expected errors are raised as ``RlError``."""
    request = parse_cli(argv)
    if request.show_help:
        print(_USAGE)  # noqa: T201 - what was asked for
        return 0
    if request.cfg:
        print(cfg_text(request), end="")  # noqa: T201 - what was asked for
        return 0
    run_ppo(compose_request(request))
    return 0


if __name__ == "__main__":
    sys.exit(report_errors(main, sys.argv[1:]))
