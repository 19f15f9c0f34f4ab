"""From a command line of ``rl sft`` to ``fit``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, cast

from rl_core.config import SFT, SFTConfig, parse_cli
from rl_core.config.check import check_config
from rl_core.config.compose import compose_command
from rl_core.config.printing import cfg_text
from rl_core.plugins import get_registry

_USAGE: Final = """rl sft KEY=VALUE ...          fine-tune on conversations

  --cfg job                   print the composed configuration and stop
  --config-name, --config-path    take a configuration file instead of the defaults
  --traceback                 show the traceback of an expected error as well

  rl sft model.path=MODEL data.train_files=train.jsonl data.val_files=val.jsonl data.train_batch_size=32 optim.lr=1e-5

A row holds `messages`, a list of {role, content}; the assistant's turns are learned.
Keys: rl config show --command sft --help-key SECTION.  Before a run: rl check --command sft KEY=VALUE ..."""


def main(argv: Sequence[str]) -> int:
    """Compose the configuration from ``argv`` and train; expected errors are raised as ``RlError``."""
    request = parse_cli(argv, SFT)
    if request.show_help:
        print(_USAGE)  # noqa: T201 - what was asked for
        return 0
    if request.cfg:
        print(cfg_text(request, layout=SFT), end="")  # noqa: T201 - what was asked for
        return 0
    run_sft(cast("SFTConfig", compose_command(request, SFT)))
    return 0


def run_sft(composed: SFTConfig) -> Path:
    """Check the configuration, then train; everything that was started is ended, also after a failure.

    Returns:
        The run folder.

    Raises:
        ConfigError: the run could not work; nothing was started.
    """
    config, registry = composed.tree, get_registry()
    report = check_config(composed, None, registry)
    report.raise_if_failed()
    for line in report.start_lines():
        print(line)  # noqa: T201 - what the run does differently from what was asked stands above its first step
    # Heavy imports stand here so that a wrong key is reported before torch is loaded.
    from rl_core.runtime.launch import launch  # noqa: PLC0415
    from rl_core.trainer.sft.trainer import train  # noqa: PLC0415

    return launch(config, partial(train, composed))
