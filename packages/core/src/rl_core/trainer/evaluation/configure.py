"""The configuration of an evaluation: that of the checkpoint, the keys given on top, and how answers are drawn."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rl_core.config.check import BATCH, STEPS, check_config
from rl_core.config.compose import Config, compose
from rl_core.config.inert import inert_lines
from rl_core.config.nested import merged
from rl_core.errors import ConfigError

if TYPE_CHECKING:
    from rl_core.plugins import Registry
    from rl_core.trainer.evaluation.source import Source

_SAMPLING: Final = "actor_rollout_ref.rollout.val_kwargs"
_FILE_NAME: Final = "checkpoint"


def configure(
    source: Source, file: str, num_answers: int | None, overrides: Sequence[str], registry: Registry
) -> Config:
    """Compose the configuration that answers ``file`` with the weights of ``source``.

    Answers are greedy where one is drawn and at temperature 1 where several are, unless ``rollout.val_kwargs`` says else.

    Args:
        source: the checkpoint.
        file: rows to answer.
        num_answers: answers to each prompt; None takes ``rollout.val_kwargs.n``.
        overrides: ``KEY=VALUE``, on top of the checkpoint's configuration.
        registry: plugins.

    Raises:
        ConfigError: keys are unknown or contradict each other, or say something else than the arguments.
    """
    values = merged(source.values, {"data": {"val_files": file}})
    given = compose_values(values, overrides, registry)
    _check_arguments(given, source, file, num_answers)
    config = compose_values(values, [*overrides, *_sampling(given, num_answers)], registry)
    require_sound(config, registry)
    return config


def compose_values(values: Mapping[str, Any], overrides: Sequence[str], registry: Registry) -> Config:
    """``compose`` with nested ``values`` as the configuration file.

    Raises:
        ConfigError: keys are unknown, contradict each other or have no such value.
    """
    with tempfile.TemporaryDirectory() as folder:
        _write(values, Path(folder) / f"{_FILE_NAME}.yaml")
        return compose(overrides, config_name=_FILE_NAME, config_path=folder, registry=registry)


def require_sound(config: Config, registry: Registry) -> None:
    """Refuse what ``rl check`` calls an error, but for batch sizes and steps, which are training's.

    Raises:
        ConfigError: names everything that is wrong.
    """
    errors = [error.text for error in check_config(config, None, registry).errors if error.topic not in (BATCH, STEPS)]
    if errors:
        raise ConfigError("\n".join(errors))


def notes(config: Config, source: Source) -> list[str]:
    """What the evaluation does differently from what the configuration says, one line each."""
    typed = [override.partition("=")[0].lstrip("+") for override in config.overrides]
    val = config.tree.actor_rollout_ref.rollout.val_kwargs
    lines = [*config.notices, *inert_lines(typed)]
    if val.n > 1 and not (val.do_sample and val.temperature > 0):
        lines.append(f"{_SAMPLING} asks for greedy answers: all {val.n} to a prompt are the same.")
    if source.redacted:
        lines.append(f"the run folder keeps no secrets; not set here: {', '.join(source.redacted)}.")
    return lines


def _write(values: object, path: Path) -> None:
    from omegaconf import OmegaConf  # noqa: PLC0415 - loaded only to compose

    OmegaConf.save(OmegaConf.create(values), path)


def _check_arguments(given: Config, source: Source, file: str, num_answers: int | None) -> None:
    tree = given.tree
    if tree.data.val_files != file:
        msg = f"data.val_files is {tree.data.val_files!r}, but FILE is {file!r}. FILE alone names the rows."
        raise ConfigError(msg)
    model = tree.actor_rollout_ref.model.path
    if source.checkpoint is None and model != str(source.path):
        msg = f"actor_rollout_ref.model.path is {model!r}, but CHECKPOINT is {source.name!r}. CHECKPOINT alone names the model."
        raise ConfigError(msg)
    key, n = f"{_SAMPLING}.n", tree.actor_rollout_ref.rollout.val_kwargs.n
    is_typed = any(text.lstrip("+").startswith(f"{key}=") for text in given.overrides)
    if is_typed and num_answers not in (None, n):
        msg = f"--n is {num_answers}, but {key} is {n}. Give one of them."
        raise ConfigError(msg)


def _sampling(given: Config, num_answers: int | None) -> list[str]:
    """Overrides for what nobody has said."""
    val = given.tree.actor_rollout_ref.rollout.val_kwargs
    n = num_answers or val.n
    chosen = [f"{_SAMPLING}.n={n}"]
    is_greedy_on_purpose = f"{_SAMPLING}.do_sample" in given.given and not val.do_sample
    if n > 1 and f"{_SAMPLING}.temperature" not in given.given and not is_greedy_on_purpose:
        chosen.append(f"{_SAMPLING}.temperature=1.0")
    return chosen
