"""From a command line of ``rl rm`` to ``fit``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from rl_core.config import RM
from rl_core.trainer.offline.command import Train, run_checked, run_command

if TYPE_CHECKING:
    from rl_core.config import Composed, RMConfig

_USAGE: Final = """rl rm KEY=VALUE ...          train a reward model on preference pairs

  --cfg job                   print the composed configuration and stop
  --config-name, --config-path    take a configuration file instead of the defaults
  --traceback                 show the traceback of an expected error as well

  rl rm model.path=MODEL data.train_files=train.parquet data.val_files=test.parquet data.train_batch_size=64 optim.lr=1e-5

A row holds `chosen` and `rejected`: two conversations, or two answers to `prompt`.
Keys: rl config show --command rm --help-key SECTION.  Before a run: rl check --command rm KEY=VALUE ..."""


def main(argv: Sequence[str]) -> int:
    """Compose the configuration from ``argv`` and train; expected errors are raised as ``RlError``."""
    return run_command(argv, RM, _USAGE, _run)


def run_rm(composed: RMConfig) -> Path:
    """Check the configuration, then train; see ``rl_core.trainer.offline.command.run_checked``."""
    return run_checked(composed, _trainer)


def _run(composed: Composed) -> Path:
    return run_rm(cast("RMConfig", composed))


def _trainer() -> Train:
    from rl_core.trainer.offline.trainer import train  # noqa: PLC0415 - heavy
    from rl_core.trainer.rm.trainer import RMTrainer  # noqa: PLC0415 - heavy

    return partial(train, RMTrainer)
