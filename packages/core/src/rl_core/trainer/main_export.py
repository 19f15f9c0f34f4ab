"""``rl export CHECKPOINT OUT``: a model of a checkpoint as a Hugging Face folder, in one process on the CPU."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, cast

from rl_core.entry_point import report_errors
from rl_core.errors import ConfigError
from rl_core.plugins import get_registry

if TYPE_CHECKING:
    from rl_core.contracts.engine import TrainingEngine
    from rl_core.plugins import Registry
    from rl_core.trainer.export_source import SavedModel

_USAGE: Final = "rl export CHECKPOINT OUT [--role ROLE] [--merge-lora | --adapter] [--dtype DTYPE] [KEY=VALUE ...]"
_DESCRIPTION: Final = """Write a model of a checkpoint as a Hugging Face folder, with its tokenizer.

  CHECKPOINT   a run folder (its newest complete checkpoint), or a folder global_step_N
               of one; from any number of workers
  OUT          the folder that gets the model; must be empty or not there
  KEY=VALUE    overrides on top of the run's configuration, such as the place of a base
               model that has moved (actor_rollout_ref.model.path=FOLDER)"""
ROLES: Final = ("actor", "critic", "reward_model")
DTYPES: Final = ("fp32", "bf16", "fp16")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        msg = f"{message}.\n  {self.format_usage().strip()}"
        raise ConfigError(msg)


def main(argv: Sequence[str]) -> int:
    """Export as ``argv`` says; expected errors are raised as ``RlError``."""
    options = _parser().parse_intermixed_args(list(argv))
    if len(options.words) < 2:
        given = " ".join(options.words) or "neither"
        msg = f"rl export needs a CHECKPOINT and an OUT; it got {given}.\n  usage: {_USAGE}"
        raise ConfigError(msg)
    text, out, *overrides = options.words
    folder = require_free(Path(out).expanduser())
    # Imported late: what is wrong with the arguments is said before torch is loaded.
    from rl_core.trainer.export_source import (  # noqa: PLC0415
        find_checkpoint,
        run_config,
        saved_model,
        with_lora_export,
    )
    from rl_core.trainer.offline.export import export_model  # noqa: PLC0415

    registry = get_registry()
    checkpoint = find_checkpoint(text)
    model = saved_model(checkpoint, run_config(checkpoint, overrides, registry), options.role, registry)
    model = replace(model, section=with_lora_export(model.section, options.lora, options.role))
    started = time.perf_counter()
    engine = loaded(model, options.dtype, registry)
    try:
        origin = {"run": str(checkpoint.path.parent), "step": checkpoint.step, "role": options.role}
        export_model(folder, lambda directory: engine.export_hf(Path(directory)), origin)
    finally:
        engine.close()
    print(f"exported the {options.role} of {checkpoint.path} to {folder} in {time.perf_counter() - started:.1f} s")  # noqa: T201
    return 0


def require_free(folder: Path) -> Path:
    """Refuse a folder that holds anything.

    Raises:
        ConfigError: it does.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        msg = (
            f"OUT is {folder}, which is there already; rl export overwrites nothing. Name another folder, or remove it."
        )
        raise ConfigError(msg)
    return folder.absolute()


def loaded(model: SavedModel, dtype: str | None, registry: Registry) -> TrainingEngine:
    """The engine with the weights of ``model``, alone in this process; to be closed.

    Raises:
        CheckpointError: the files are incomplete, or of another model.
    """
    from rl_core.single_controller.base.collective import SoloCollective, WorkerContext  # noqa: PLC0415 - as above

    engine_class = cast("type[TrainingEngine]", registry.load("backend", model.strategy))
    config = engine_class.alone(model.config, dtype)
    engine = engine_class(model.role, model.section, config, WorkerContext(0, 1, 0, 1, "cpu", SoloCollective()))
    engine.initialize()
    try:
        engine.load(model.folder)
    except BaseException:
        engine.close()
        raise
    return engine


def _parser() -> _Parser:
    parser = _Parser(
        prog="rl export",
        usage=_USAGE,
        description=_DESCRIPTION,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument(
        "--role",
        choices=ROLES,
        default="actor",
        help="model of the checkpoint (default: actor, which is also that of rl sft and rl rm)",
    )
    lora = parser.add_mutually_exclusive_group()
    lora.add_argument(
        "--merge-lora",
        dest="lora",
        action="store_const",
        const="merged",
        help="a whole model, adapters added to the base",
    )
    lora.add_argument(
        "--adapter", dest="lora", action="store_const", const="adapter", help="the adapters alone, as PEFT reads them"
    )
    parser.add_argument("--dtype", choices=DTYPES, help="format of the weights (default: that of the run)")
    return parser


if __name__ == "__main__":
    sys.exit(report_errors(main, sys.argv[1:]))
