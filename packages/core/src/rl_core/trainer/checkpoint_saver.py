"""The checkpoint that a run is writing: at once, or while training goes on.

::

    save    wait for the one before; every role writes, or copies and writes on       training waits
    poll    once a step: all roles whole? then the checkpoint becomes visible         training goes on
    wait    at the end of the run, and before the next save                           training waits

A checkpoint has one name for all roles and ranks, and gets it when the last of them is whole. A run that ends before, by
whatever, leaves the checkpoint before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_core.contracts.engine import SaveState
from rl_core.trainer.checkpoint import CheckpointStore, Unfinished


@dataclass(frozen=True)
class SavedRole:
    """One of the models of a checkpoint.

    Attributes:
        name: of its folder.
        group: its workers.
        in_background: whether they write while training goes on.
    """

    name: str
    group: Any
    in_background: bool = False


class CheckpointSaver:
    """Saves for one run; at most one checkpoint is under way."""

    def __init__(self, store: CheckpointStore) -> None:
        """Save into ``store``."""
        self._store = store
        self._unfinished: Unfinished | None = None
        self._groups: list[Any] = []

    def save(
        self, step: int, roles: Sequence[SavedRole], state: Mapping[str, Any], identity: Mapping[str, Any]
    ) -> None:
        """Write a checkpoint, or begin to where a role writes in the background.

        Args:
            step: global step.
            roles: what is saved.
            state: the controller's state as plain data.
            identity: what the checkpoint belongs to.

        Raises:
            CheckpointError: it, or the one before that was still under way, could not be written.
        """
        self.wait()

        def write(folder: Path) -> None:
            for role in roles:
                start = role.group.start_checkpoint if role.in_background else role.group.save_checkpoint
                start(str(folder / role.name))

        self._unfinished = self._store.begin(step, write, state, identity)
        self._groups = [role.group for role in roles if role.in_background]
        if not self._groups:
            self.wait()

    def poll(self) -> None:
        """Make a checkpoint visible that has become whole; no waiting, unless a rank has failed.

        Raises:
            CheckpointError: a rank could not write; names its file.
        """
        if self._unfinished is None:
            return
        states = {state for group in self._groups for state in group.poll_checkpoint()}
        if SaveState.FAILED in states or SaveState.WRITING not in states:
            self.wait()

    def wait(self) -> None:
        """Until nothing is under way.

        Raises:
            CheckpointError: as ``poll``.
        """
        unfinished, self._unfinished = self._unfinished, None
        if unfinished is not None:
            unfinished.complete(self._finish)

    def _finish(self) -> None:
        for group in self._groups:
            group.finish_checkpoint()
