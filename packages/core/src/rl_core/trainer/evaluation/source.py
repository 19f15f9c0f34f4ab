"""What the CHECKPOINT of a command line is: a Hugging Face folder, a run folder, or one checkpoint of a run."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rl_core.config.derive import FOLLOWS
from rl_core.config.nested import ABSENT, get_path, leaves, pop_path
from rl_core.config.secrets import REDACTED
from rl_core.errors import CheckpointError
from rl_core.trainer.checkpoint import Checkpoint, CheckpointStore, read_checkpoint

RUN_CONFIG: Final = "config.yaml"
EXPORT: Final = "huggingface"
"""Where a fine-tuning run leaves its model, below the run folder."""
_MODEL_CONFIG: Final = "config.json"
_TAKES: Final = (
    "CHECKPOINT takes a run folder (its newest complete checkpoint), a folder global_step_N of one, or a Hugging Face "
    "folder (config.json, weights, tokenizer)."
)


@dataclass(frozen=True)
class Source:
    """Where weights come from.

    Attributes:
        path: the folder that the weights are read from.
        checkpoint: of a run; None for a Hugging Face folder.
        values: the configuration that comes with it, nested; as of its run, or the model's path alone.
        redacted: keys whose values the run folder does not keep.
    """

    path: Path
    checkpoint: Checkpoint | None
    values: Mapping[str, Any]
    redacted: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        """How messages call it."""
        return str(self.path)


def find_source(text: str) -> Source:
    """Find out what ``text`` names.

    Raises:
        CheckpointError: it is nothing that can be scored: says what the folder holds, and what would be.
    """
    path = Path(text).expanduser()
    if not path.is_dir():
        msg = f"CHECKPOINT is {text}: no such folder. {_TAKES}"
        raise CheckpointError(msg)
    found = read_checkpoint(path) or CheckpointStore(path).latest()
    if found is not None:
        values, redacted = run_values(found.path.parent / RUN_CONFIG)
        return Source(found.path, found, values, redacted)
    if (path / _MODEL_CONFIG).is_file():
        return Source(path, None, {"actor_rollout_ref": {"model": {"path": str(path)}}})
    raise CheckpointError(_why_not(path))


def run_values(file: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The configuration of a run as it was given: what follows from other keys is left to follow again.

    Args:
        file: ``config.yaml`` of the run folder.

    Returns:
        The nested values, and the keys that were left out because the file does not keep secrets.

    Raises:
        CheckpointError: there is no such file, or it holds no configuration.
    """
    from omegaconf import OmegaConf  # noqa: PLC0415 - loaded only to compose

    if not file.is_file():
        msg = f"{file} is missing: the checkpoint does not say how to build its model. Restore it from the run folder."
        raise CheckpointError(msg)
    values = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    if not isinstance(values, dict) or not isinstance(values.get("actor_rollout_ref"), dict):
        raise CheckpointError(_of_another_kind(file, values))
    plain = {str(key): value for key, value in values.items()}
    pop_path(plain, "data.val_max_samples")  # speaks of the run's own validation file
    redacted = tuple(path for path, value in leaves(plain) if _is_redacted(value))
    for path in redacted:
        pop_path(plain, path)
    return _without_followers(plain), redacted


def _is_redacted(value: Any) -> bool:
    """Whether a value lacks a secret, whole or in part."""
    if isinstance(value, list):
        return any(map(_is_redacted, value))
    return isinstance(value, str) and REDACTED in value


def _of_another_kind(file: Path, values: Any) -> str:
    """Why a run folder that is not one of ``rl train`` cannot be scored, and what of it can."""
    run = file.parent
    if not isinstance(values, dict) or not {"model", "engine"} <= values.keys():
        return f"{file} is no configuration of 'rl train' (it has no section actor_rollout_ref). {_TAKES}"
    if "loss" in values:
        return f"{run} is a run of 'rl rm': its model scores answers and writes none. {_TAKES}"
    trainer = values.get("trainer")
    named = trainer.get("export_dir") if isinstance(trainer, dict) else None
    folders = [run / EXPORT, *([Path(named).expanduser()] if isinstance(named, str) else [])]
    exported = next((folder for folder in folders if (folder / _MODEL_CONFIG).is_file()), None)
    start = f"{run} is a run of 'rl sft', whose checkpoints are for going on with it."
    if exported is None:
        return (
            f"{start} rl eval scores the Hugging Face folder that such a run writes after its last step (trainer.export_dir); "
            "it is not there. Run the same command again to finish the run."
        )
    return f"{start} rl eval scores the Hugging Face folder that it exported after its last step: {exported}"


def _without_followers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Derived values must not stand as if they had been given: they would stay when what they follow is overridden."""
    kept = copy.deepcopy(dict(values))
    for key, followed in FOLLOWS:
        value = get_path(values, key)
        if value is not ABSENT and value == get_path(values, followed):
            pop_path(kept, key)
    sampling = "actor_rollout_ref.rollout.val_kwargs"
    temperature, do_sample = (get_path(values, f"{sampling}.{name}") for name in ("temperature", "do_sample"))
    if temperature is not ABSENT and do_sample is not ABSENT and do_sample == (temperature > 0):
        pop_path(kept, f"{sampling}.do_sample")
    return kept


def _why_not(path: Path) -> str:
    parent = read_checkpoint(path.parent)
    if parent is not None:
        return f"CHECKPOINT is {path}, a part of the checkpoint {parent.path}. Name that folder."
    if (path / RUN_CONFIG).is_file():
        run_values(path / RUN_CONFIG)  # refuses runs of another kind, which have something else to name
        return (
            f"CHECKPOINT is {path}, a run folder without a complete checkpoint. trainer.save_freq says when a run saves "
            "one; an interrupted save does not count."
        )
    if path.name.startswith("global_step_"):
        beside = ", ".join(item.path.name for item in CheckpointStore(path.parent).all()) or "none"
        return f"CHECKPOINT is {path}, which is not complete. Complete ones beside it: {beside}."
    names = sorted(item.name for item in path.iterdir())
    holds = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") or "nothing"
    return f"CHECKPOINT is {path}, which holds no checkpoint but {holds}. {_TAKES}"
