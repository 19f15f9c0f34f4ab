"""What has to survive a restart."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Stateful(Protocol):
    """Something whose state is part of a checkpoint: sampler, data loader, KL controller, counters, RNG.

    The state is plain data (numbers, strings, lists, dicts, tensors), so that it is written without pickle.
    ``load_state_dict(state_dict())`` leaves an object that goes on exactly as the saved one would have.
    """

    def state_dict(self) -> dict[str, Any]:
        """The state as plain data."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over ``state``.

        Raises:
            CheckpointError: ``state`` belongs to another configuration (for example another data set).
        """
