"""What a weight sink may ask of the engine it belongs to."""

from __future__ import annotations

from typing import Any, Protocol


class EngineClient(Protocol):
    """The part of a running engine that the weight side uses; all of it runs on the replica's lead worker.

    The engine's own workers are other processes: what ``rpc`` carries to them is bytes, strings and integers.
    """

    version: int | None
    """What was last said by ``set_version``, or None since the weights were lost (asleep, another engine)."""

    is_paused: bool
    """Whether drawing is stopped, by whomever."""

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight. Without a version none comes, so an update then has nothing to pause."""
        ...

    async def rpc(self, method: str, *args: Any) -> list[Any]:
        """Call ``method`` of the worker extension on every worker; their answers in rank order.

        Raises:
            RlError: a worker raised, or the engine is gone. A failed call may leave a worker half changed, so the
                engine refuses to generate until a hand-over has ended well.
        """
        ...

    async def pause(self) -> None:
        """Stop drawing tokens; requests stay in flight."""
        ...

    async def resume(self) -> None:
        """Undo ``pause``."""
        ...

    async def reset_prefix_cache(self) -> None:
        """Forget cached prefixes: they belong to weights that are gone."""
        ...

    def set_version(self, version: int | None) -> None:
        """Say which policy version the workers hold from now on; None while they hold none that can be used."""
        ...
