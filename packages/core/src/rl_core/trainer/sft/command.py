"""From a command line of ``rl sft`` to ``fit``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from rl_core.config import SFT
from rl_core.trainer.offline.command import Train, run_checked, run_command

if TYPE_CHECKING:
    from rl_core.config import Composed, SFTConfig

_USAGE: Final = """rl sft KEY=VALUE ...          fine-tune on conversations

  --cfg job                   print the composed configuration and stop
  --config-name, --config-path    take a configuration file instead of the defaults
  --traceback                 show the traceback of an expected error as well

  rl sft model.path=MODEL data.train_files=train.jsonl data.val_files=val.jsonl data.train_batch_size=32 optim.lr=1e-5

A row holds `messages`, a list of {role, content}; the assistant's turns are learned.
Keys: rl config show --command sft --help-key SECTION.  Before a run: rl check --command sft KEY=VALUE ..."""


def main(argv: Sequence[str]) -> int:
    """Compose the configuration from ``argv`` and train; expected errors are raised as ``RlError``."""
    return run_command(argv, SFT, _USAGE, _run)


def run_sft(composed: SFTConfig) -> Path:
    """Check the configuration, then train; see ``rl_core.trainer.offline.command.run_checked``."""
    return run_checked(composed, _trainer)


def _run(composed: Composed) -> Path:
    return run_sft(cast("SFTConfig", composed))


def _trainer() -> Train:
    from rl_core.trainer.offline.trainer import train  # noqa: PLC0415 - heavy
    from rl_core.trainer.sft.trainer import SFTTrainer  # noqa: PLC0415 - heavy

    return partial(train, SFTTrainer)
