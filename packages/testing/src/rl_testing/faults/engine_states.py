"""Training engines that forget, or keep what they should give back."""

# A fault's class says what it does wrong; what its methods should do stands in the contract.
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rl_core.contracts.engine import EngineConfig, EngineRole, EngineState
from rl_core.errors import CheckpointError
from rl_core.single_controller.base.collective import WorkerContext

from rl_testing.fakes.parts import Parts
from rl_testing.fakes.pipeline_engine import PipelineEngine
from rl_testing.fakes.plain_engine import PlainEngine
from rl_testing.faults.engine_numbers import fault


class _Seeded(PlainEngine):
    """One role starts from other weights."""

    seeded_role: EngineRole

    def __init__(self, role: EngineRole, model: Any, config: EngineConfig, context: WorkerContext) -> None:
        if role is self.seeded_role:
            model = SimpleNamespace(override_config={**model.override_config, "init_seed": 1})
        super().__init__(role, model, config, context)


class ReferenceOfItsOwn(_Seeded):
    """The reference is not the policy's start."""

    seeded_role = EngineRole.REFERENCE


class TrunkOfItsOwn(_Seeded):
    """The value model draws its trunk anew."""

    seeded_role = EngineRole.VALUE


class ForgetsOptimizer(PlainEngine):
    """Starts the optimizer anew on resume."""

    def load(self, directory: Path) -> None:
        super().load(directory)
        self.states.put(EngineState.OPTIMIZER, {})


class ForgetsSchedule(PlainEngine):
    """Starts the schedule anew on resume."""

    def load(self, directory: Path) -> None:
        super().load(directory)
        self.schedule_step = 0


class ForgetsRandomState(PlainEngine):
    """Starts the random stream anew on resume."""

    def load(self, directory: Path) -> None:
        before = self.generator.get_state()
        super().load(directory)
        self.generator.set_state(before)


class LoadsAnything(PlainEngine):
    """Takes what fits of a checkpoint, which may be nothing."""

    def load(self, directory: Path) -> None:
        try:
            super().load(directory)
        except CheckpointError:
            self.context.collective.barrier()


class ShardsOfOneSize(PipelineEngine):
    """Each rank takes the optimizer state of the whole tensor's first rows."""

    def load(self, directory: Path) -> None:
        super().load(directory)
        state = self.states.get(EngineState.OPTIMIZER, "load")
        self.states.put(EngineState.OPTIMIZER, {key: t.flip(0) if t.ndim else t for key, t in state.items()})


class OffloadKeepsMemory(PlainEngine):
    """Marks states as gone and keeps their tensors."""

    gone: frozenset[EngineState] = frozenset()

    def offload(self, states: Collection[EngineState]) -> None:
        self.gone |= frozenset(states) & super().resident()

    def onload(self, states: Collection[EngineState]) -> None:
        self.gone -= frozenset(states)

    def resident(self) -> frozenset[EngineState]:
        return super().resident() - self.gone


class OffloadMovesEverything(PlainEngine):
    """Moves all states whichever are named."""

    def offload(self, states: Collection[EngineState]) -> None:
        super().offload(frozenset(EngineState) if states else states)


class OffloadRounds(PlainEngine):
    """Keeps half the bits on the host."""

    def offload(self, states: Collection[EngineState]) -> None:
        super().offload(states)
        for tensors in self.states.host.values():
            tensors.update({name: tensor.float().to(tensor.dtype) for name, tensor in tensors.items()})


class OnloadsByItself(PlainEngine):
    """Brings back what it needs without being told."""

    def parameters(self, what_for: str) -> Parts:
        self.states.onload([EngineState.PARAMETERS])
        return super().parameters(what_for)


class ServesAfterClose(PlainEngine):
    """Keeps its memory after ``close``."""

    def close(self) -> None:
        pass


_RESUME = "test_resume_is_exact"

FAULTS = (
    fault(ReferenceOfItsOwn, "reference-of-its-own", "the reference starts as the policy does",
          "test_a_reference_engine_scores_and_never_trains"),
    fault(TrunkOfItsOwn, "trunk-of-its-own", "roles share the trunk", "test_roles_share_the_trunk"),
    fault(ForgetsOptimizer, "resume-forgets-optimizer", "a checkpoint holds the optimizer's state", _RESUME),
    fault(ForgetsSchedule, "resume-forgets-schedule", "a checkpoint holds the schedule's position", _RESUME),
    fault(ForgetsRandomState, "resume-forgets-random-state", "a checkpoint holds the random state", _RESUME),
    fault(LoadsAnything, "loads-anything", "a foreign checkpoint is refused", "test_a_foreign_checkpoint_is_refused"),
    fault(ShardsOfOneSize, "optimizer-state-cut-differently", "a checkpoint fits any number of ranks",
          "test_a_checkpoint_fits_any_number_of_ranks", world_size=2),
    fault(OffloadKeepsMemory, "offload-keeps-memory", "what is offloaded leaves the device",
          "test_states_leave_and_come_back"),
    fault(OffloadMovesEverything, "offload-moves-everything", "only the named states move",
          "test_states_leave_and_come_back"),
    fault(OffloadRounds, "offload-rounds", "values survive exactly", "test_offloading_keeps_every_value"),
    fault(OnloadsByItself, "onloads-by-itself", "what is offloaded cannot be used", "test_what_is_offloaded_cannot_be_used"),
    fault(ServesAfterClose, "serves-after-close", "a closed engine refuses", "test_use_outside_its_life_is_refused"),
)  # fmt: skip
"""Engines that break a promise about lifetime, offloading or checkpoints."""
