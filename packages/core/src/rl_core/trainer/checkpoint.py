"""Checkpoints on disk: whole or not there at all.

::

    <run folder>/global_step_40/{actor,critic}/      written by the workers
    <run folder>/global_step_40/trainer_state.json   sampler, controllers, counters
    <run folder>/global_step_40/checkpoint.json      written last: what this is; its presence makes the folder complete
    <run folder>/latest_checkpointed_iteration.txt   for people and scripts; resuming looks at the folders themselves

A checkpoint grows in a hidden folder and gets its name by one rename. Older ones are removed only after that.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_core.errors import CheckpointError
from rl_core.trainer.json_text import to_json

if TYPE_CHECKING:
    from rl_core.config.trainer import RunConfig

POINTER = "latest_checkpointed_iteration.txt"
_MARKER = "checkpoint.json"
_STATE = "trainer_state.json"
_FOLDER = re.compile(r"global_step_(\d+)")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint.

    Attributes:
        path: its folder.
        step: global step after which it was written.
        identity: what it belongs to, as given to ``save``.
    """

    path: Path
    step: int
    identity: Mapping[str, Any]

    def trainer_state(self) -> dict[str, Any]:
        """The controller's state."""
        state: dict[str, Any] = json.loads((self.path / _STATE).read_text(encoding="utf-8"))
        return state


class CheckpointStore:
    """The checkpoints of one run folder."""

    def __init__(self, folder: str | Path, *, max_to_keep: int | None = None) -> None:
        """Store the arguments.

        Args:
            folder: the run folder; made when the first checkpoint is saved.
            max_to_keep: newest complete checkpoints that are kept; None keeps all.
        """
        # Workers may stand somewhere else than the controller.
        self.folder = Path(folder).expanduser().absolute()
        self._max_to_keep = max_to_keep

    def save(
        self,
        step: int,
        write: Callable[[Path], None],
        state: Mapping[str, Any],
        identity: Mapping[str, Any],
    ) -> Checkpoint:
        """Write a checkpoint, make it visible, then remove what is too old.

        Args:
            step: global step.
            write: fills the given folder; whatever it raises leaves older checkpoints as they were.
            state: the controller's state as plain data.
            identity: what the checkpoint belongs to; see ``require_identity``.

        Raises:
            CheckpointError: the disk refused; says where, why, and how much room is left.
        """
        return self.begin(step, write, state, identity).complete(lambda: None)

    def begin(
        self,
        step: int,
        write: Callable[[Path], None],
        state: Mapping[str, Any],
        identity: Mapping[str, Any],
    ) -> Unfinished:
        """The first half of ``save``: nobody sees the checkpoint until it is completed.

        Args:
            step: as for ``save``.
            write: as for ``save``; the folder may go on filling after it has returned.
            state: as for ``save``.
            identity: as for ``save``.

        Raises:
            CheckpointError: as ``save``.
        """
        partial = self.folder / f".global_step_{step}.partial"
        unfinished = Unfinished(self, partial, step, dict(identity))
        with unfinished.or_removed():
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            write(partial)
            if not any(partial.iterdir()):
                msg = (
                    f"checkpoint of step {step}: the workers wrote nothing below {partial}, so their {self.folder} is "
                    "another one than the controller's. Set trainer.default_local_dir to a folder that every node sees under "
                    "this path."
                )
                raise CheckpointError(msg)
            _write_synced(partial / _STATE, to_json(state))
        return unfinished

    def all(self) -> list[Checkpoint]:
        """Complete checkpoints, oldest first."""
        if not self.folder.is_dir():
            return []
        found = [read_checkpoint(path) for path in self.folder.iterdir() if _FOLDER.fullmatch(path.name)]
        return sorted((item for item in found if item is not None), key=lambda item: item.step)

    def latest(self) -> Checkpoint | None:
        """The newest complete checkpoint, whatever the pointer says: it may be older if its write failed."""
        complete = self.all()
        return complete[-1] if complete else None

    def remove_partial(self) -> None:
        """Clear what an interrupted save left behind. Called when no save is under way."""
        for leftover in self.folder.glob(".global_step_*"):
            shutil.rmtree(leftover)

    def require_none_after(self, step: int) -> None:
        """Refuse to write into a folder that holds later checkpoints than the run will start from.

        Raises:
            CheckpointError: there are some: a run that goes on from ``step`` would mix with them.
        """
        later = [item.path.name for item in self.all() if item.step > step]
        if later:
            start = f"go on after step {step}" if step else "start anew"
            msg = (
                f"{self.folder} holds {', '.join(later)}, but this run would {start} and mix its checkpoints with them. "
                "Use another trainer.experiment_name or trainer.default_local_dir, or move them away."
            )
            raise CheckpointError(msg)

    def _point_to(self, step: int) -> None:
        temporary = self.folder / f".{POINTER}.partial"
        try:
            _write_synced(temporary, f"{step}\n")
            temporary.replace(self.folder / POINTER)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def rotate(self) -> None:
        """Remove the oldest beyond ``max_to_keep``."""
        if self._max_to_keep is None:
            return
        for old in self.all()[: -self._max_to_keep]:
            # Under a hidden name it is no checkpoint any more, even if the removal is interrupted.
            leaving = self.folder / f".{old.path.name}.removed"
            old.path.rename(leaving)
            shutil.rmtree(leaving)


class Unfinished:
    """A checkpoint that is not visible yet."""

    def __init__(self, store: CheckpointStore, partial: Path, step: int, identity: Mapping[str, Any]) -> None:
        """See ``CheckpointStore.begin``."""
        self.step = step
        self._store = store
        self._partial = partial
        self._identity = identity

    def complete(self, finish: Callable[[], None]) -> Checkpoint:
        """Make it visible, then remove what is too old.

        Args:
            finish: returns when all is written; whatever it raises leaves older checkpoints as they were.

        Raises:
            CheckpointError: as ``CheckpointStore.save``.
        """
        store, step, partial = self._store, self.step, self._partial
        final = store.folder / f"global_step_{step}"
        with self.or_removed():
            finish()
            _write_synced(partial / _MARKER, to_json({"step": step, "identity": dict(self._identity)}))
            replaced = store.folder / f".global_step_{step}.replaced"
            if final.exists():
                final.rename(replaced)
            partial.rename(final)
            shutil.rmtree(replaced, ignore_errors=True)
            _sync_folder(store.folder)
            store._point_to(step)
        store.rotate()
        return Checkpoint(final, step, self._identity)

    @contextmanager
    def or_removed(self) -> Iterator[None]:
        """What fails within leaves nothing behind."""
        try:
            yield
        except BaseException as error:
            shutil.rmtree(self._partial, ignore_errors=True)
            if not isinstance(error, OSError):
                raise
            folder = self._store.folder
            msg = f"checkpoint of step {self.step} could not be written below {folder}: {error} ({_free_space(folder)})"
            raise CheckpointError(msg) from error


def read_checkpoint(path: Path) -> Checkpoint | None:
    """The checkpoint in ``path``, or None if it is not complete."""
    marker = path / _MARKER
    if not marker.is_file():
        return None
    content = json.loads(marker.read_text(encoding="utf-8"))
    return Checkpoint(path, content["step"], content["identity"])


def checkpoint_to_resume(folder: str | Path, mode: str, path: str | None) -> Checkpoint | None:
    """Where to go on, as ``trainer.resume_mode`` and ``resume_from_path`` say; None starts anew.

    Raises:
        CheckpointError: ``resume_path`` without a path, or with one that holds no complete checkpoint.
    """
    if mode == "disable":
        return None
    if mode == "auto":
        return CheckpointStore(folder).latest()
    if path is None:
        msg = "trainer.resume_mode=resume_path needs trainer.resume_from_path (a folder global_step_N)"
        raise CheckpointError(msg)
    found = read_checkpoint(Path(path).expanduser().absolute())
    if found is None:
        parent = Path(path).expanduser().parent
        complete = ", ".join(item.path.name for item in CheckpointStore(parent).all()) or "none"
        msg = f"trainer.resume_from_path is {path}, which holds no complete checkpoint; complete ones beside it: {complete}"
        raise CheckpointError(msg)
    return found


def resume_point(config: RunConfig) -> Checkpoint | None:
    """The checkpoint that a run goes on from; None starts anew. What an interrupted save left behind is removed.

    Args:
        config: the ``trainer`` section.

    Raises:
        CheckpointError: as ``checkpoint_to_resume``; or checkpoints beyond the one found would be overwritten.
    """
    store = CheckpointStore(config.default_local_dir)
    store.remove_partial()
    found = checkpoint_to_resume(config.default_local_dir, config.resume_mode, config.resume_from_path)
    if config.save_freq != 0:
        store.require_none_after(found.step if found else 0)
    return found


def require_identity(checkpoint: Checkpoint, identity: Mapping[str, Any]) -> None:
    """Refuse to go on from a checkpoint of another model or algorithm.

    Raises:
        CheckpointError: names every difference.
    """
    keys = sorted(set(checkpoint.identity) | set(identity))
    differences = [
        f"{key}: checkpoint {checkpoint.identity.get(key)!r}, now {identity.get(key)!r}"
        for key in keys
        if checkpoint.identity.get(key) != identity.get(key)
    ]
    if differences:
        msg = (
            f"{checkpoint.path} belongs to another run ({'; '.join(differences)}). Use another "
            "trainer.experiment_name or trainer.default_local_dir, or trainer.resume_mode=disable to start anew."
        )
        raise CheckpointError(msg)


def _write_synced(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _free_space(folder: Path) -> str:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    return f"{shutil.disk_usage(existing).free / 2**30:.2f} GiB free"
