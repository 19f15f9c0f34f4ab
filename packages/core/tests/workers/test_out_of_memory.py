"""An engine that runs out of memory in each phase, in workers of the local runtime."""

import pytest
import torch
from rl_core.config.phase_table import NEEDS, Part, Phase
from rl_core.errors import OutOfMemoryError, RlError, WorkerError
from rl_core.runtime.local import LocalWorkerGroup
from rl_core.single_controller.base import Dispatch, Worker, register
from rl_core.workers.memory import GIB, MemoryMeter
from rl_core.workers.out_of_memory import ExplainsMemory, MemorySnapshot, explained, is_out_of_memory
from rl_core.workers.phases import PhaseTable

CUDA_SAYS = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.72 GiB of which 1.21 GiB is free. "
    "If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True"
)


class Engine:
    """States that are where they are told to be."""

    def __init__(self, states):
        self.on_device = set(states)

    def resident(self):
        return frozenset(self.on_device)

    def evict(self, states):
        self.on_device -= set(states)

    def load(self, states):
        self.on_device |= set(states)

    def sizes(self):
        return {"parameters": 3 * GIB, "optimizer": 6 * GIB} if "parameters" in self.on_device else {}


class Failing(ExplainsMemory, Worker):
    """Runs out of memory when it is told to."""

    def __init__(self, context):
        super().__init__(context)
        self._name = "actor_rollout_ref"
        states = {"parameters", "optimizer"}
        parts = {Part.ACTOR: Engine(states), Part.ROLLOUT: Engine(())}
        self.phases = PhaseTable(parts, {(Part.ROLLOUT, "weights"), (Part.ACTOR, "parameters")}, MemoryMeter("cpu"))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def work(self, phase, error):
        with self.phases.during(Phase(phase)):
            self._fail(error)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def generate(self, error):
        """As resharding does it."""
        try:
            self.phases.enter("generate")
            self._fail(error)
        finally:
            self.phases.leave("generate")

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def start(self, error):
        self._fail(error)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def calm(self):
        with self.phases.during(Phase.LOG_PROB):
            return self.rank

    def _fail(self, error):
        if self.rank == self.world_size - 1:
            raise error


@pytest.fixture
def group():
    group = LocalWorkerGroup(Failing, 2, name="actor_rollout_ref")
    yield group
    group.shutdown()


def failure(call):
    with pytest.raises(WorkerError) as caught:
        call()
    assert isinstance(caught.value.__cause__, OutOfMemoryError)
    assert isinstance(caught.value.__cause__, RlError)
    return str(caught.value)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.GENERATE])
def test_each_phase_says_who_holds_what_and_what_helps(group, phase):
    text = failure(lambda: group.work(phase.value, torch.OutOfMemoryError(CUDA_SAYS)))
    assert f"actor_rollout_ref rank 1 of 2 on cpu ran out of memory in phase {phase.value}. CUDA out of memory" in text
    assert "Tried to allocate 2.00 GiB" in text
    assert "expandable_segments" not in text
    assert "actor optimizer" in text
    assert "What helps:\n  - " in text


def test_generation_too(group):
    text = failure(lambda: group.generate(torch.OutOfMemoryError(CUDA_SAYS)))
    assert "in phase generate" in text
    assert "rollout kv_cache" in text  # asked before it left
    assert "lower actor_rollout_ref.rollout.gpu_memory_utilization" in text
    assert "set optimizer_offload=True in the engine's section below actor_rollout_ref.actor" in text


def test_loading_a_model_is_no_phase(group):
    assert "ran out of memory while models were loaded" in failure(lambda: group.start(MemoryError("host")))


def test_the_update_names_its_keys(group):
    text = failure(lambda: group.work("update_actor", torch.OutOfMemoryError(CUDA_SAYS)))
    assert "lower actor_rollout_ref.actor.ppo_max_token_len_per_gpu or" in text
    assert "actor_rollout_ref.model.enable_gradient_checkpointing=True" in text
    rows = {line.split()[1]: line.split()[-1] for line in text.splitlines() if line.startswith("  actor ")}
    # nothing counts the gradients of this engine
    assert rows == {"optimizer": "6.00", "parameters": "3.00", "gradients": "measured"}


def test_other_failures_stay_what_they_are(group):
    with pytest.raises(WorkerError) as caught:
        group.work("update_actor", ValueError("of another kind"))
    assert isinstance(caught.value.__cause__, ValueError)


def test_the_state_is_that_of_the_failure_and_not_of_an_older_one():
    table = PhaseTable({Part.ACTOR: Engine({"parameters"})}, {(Part.ACTOR, "parameters")})
    with pytest.raises(MemoryError), table.during(Phase.LOG_PROB):
        raise MemoryError
    assert table.take_failure() == MemorySnapshot(Phase.LOG_PROB, {(Part.ACTOR, "parameters"): 3 * GIB}, None)
    assert table.take_failure() == MemorySnapshot(None, {}, None)


def test_bringing_a_state_back_may_fail():
    class Full(Engine):
        def load(self, states):
            raise torch.OutOfMemoryError(CUDA_SAYS)

    table = PhaseTable({Part.ACTOR: Full(())}, set())
    with pytest.raises(torch.OutOfMemoryError), table.during(Phase.LOG_PROB):
        pass
    assert table.take_failure().phase is Phase.LOG_PROB


def chained(inner):
    outer = RlError("the generator failed")
    outer.__cause__ = inner
    return outer


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory: you tried 8 bytes"
        ),
        chained(torch.OutOfMemoryError("x")),
    ],
)
def test_what_is_out_of_memory(error):
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error", [None, RuntimeError("shape mismatch"), ValueError("out of memory"), chained(KeyError())]
)
def test_what_is_not(error):
    assert not is_out_of_memory(error)


def test_a_huge_tensor_on_the_cpu_is_noticed():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**52, dtype=torch.float64)
    assert is_out_of_memory(caught.value)


def test_on_a_device_the_rest_is_the_work_of_the_phase():
    states = dict.fromkeys(NEEDS[Phase.UPDATE_ACTOR], 2 * GIB)
    snapshot = MemorySnapshot(Phase.UPDATE_ACTOR, states, 10 * GIB, is_device=True)
    text = str(explained(torch.OutOfMemoryError("CUDA out of memory."), snapshot, "actor rank 0 of 1 on cuda:0"))
    assert "work of the phase                        4.00" in text
    assert "in all, at most                         10.00" in text
