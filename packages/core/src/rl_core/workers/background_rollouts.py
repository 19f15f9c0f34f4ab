"""The generation phase of a worker, held open over several calls of the controller.

Entering and leaving are those of ``generate_sequences``, ``Resharding.generation``: collective over the workers, weights
handed over on the way in, the generator asleep on the way out.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from rl_core.errors import RlError
from rl_core.workers.rollout_session import RolloutSession

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.contracts.resharding import Resharding
    from rl_core.contracts.rollout import RolloutEngine
    from rl_core.contracts.weights import SyncReport
    from rl_core.workers.async_runner import AsyncRunner


class BackgroundRollouts:
    """What is in flight on this worker between two calls, if it leads a replica; its part of the phase otherwise."""

    def __init__(self, engine: RolloutEngine, resharding: Resharding, runner: AsyncRunner) -> None:
        """Store the arguments; the devices are the trainer's.

        Args:
            engine: the generation engine on this worker.
            resharding: hands the devices over.
            runner: the engine's event loop.
        """
        self._engine = engine
        self._resharding = resharding
        self._runner = runner
        self._phase: ExitStack | None = None
        self._session: RolloutSession | None = None

    def submit(self, prompts: DataProto, version: int) -> tuple[DataProto | None, SyncReport | None]:
        """Enter the phase unless it is open, and send the requests.

        Returns:
            A batch without rows on a lead, None elsewhere; the report of the hand-over if the phase was entered.
        """
        report = None
        if self._phase is None:
            with ExitStack() as stack:
                report = stack.enter_context(self._resharding.generation(version))
                self._phase = stack.pop_all()
            self._session = RolloutSession(self._engine) if self._engine.dispatch_info().is_collect else None
        return None if self._session is None else self._runner.run(self._session.submit(prompts, version)), report

    def poll(self, wait_s: float) -> DataProto | None:
        """See ``ActorRolloutRefWorker.poll_rollouts``."""
        self._require_open("poll_rollouts")
        return None if self._session is None else self._runner.run(self._session.poll(wait_s))

    def abort(self) -> DataProto | None:
        """See ``ActorRolloutRefWorker.abort_rollouts``."""
        phase, session = self._require_open("abort_rollouts"), self._session
        self._phase = self._session = None
        with phase:
            if session is None:
                return None
            rest = self._runner.run(session.abort())
            rest.meta_info["metrics"] = dict(self._runner.run(self._engine.metrics()))
            return rest

    def require_closed(self, asked: str) -> None:
        """Refuse what would take the devices away from the responses in flight.

        Raises:
            RlError: the phase is open.
        """
        if self._phase is not None:
            msg = f"{asked} was called while responses are generated; call abort_rollouts first"
            raise RlError(msg)

    def _require_open(self, asked: str) -> ExitStack:
        if self._phase is None:
            msg = f"{asked} was called, but nothing was submitted; call submit_rollouts first"
            raise RlError(msg)
        return self._phase
