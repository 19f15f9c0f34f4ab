"""What a training backend on Hugging Face models implements, and the little that it may.

::

    must    open, shut                  join the other workers, and leave them
            load_dtype, compute_dtype   number formats
            shard                       the model onto the device, shared with the others
            before_backward             is this the pass after which gradients are added up over ranks?
            after_forward               drop what was gathered
            grad_norm                   over all ranks
            gather, owner_ranks, local  whole tensors from parts, and parts from tensors
            save, load                  checkpoints (of ``TrainingEngine``)
    may     computing                   around everything that runs kernels
            compute, backward           another library's, in place of the model's own and autograd's
            make_optimizer, step        another library's optimizer, in place of one over ``parameters()``
            on_device                   states that leave the device by themselves
            start_save, poll_save, finish_save    checkpoints in the background (of ``TrainingEngine``)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
from rl_core.contracts.engine import EngineConfig, EngineRole, TrainingEngine
from rl_core.contracts.weights import WeightSpec
from rl_core.errors import RlError
from rl_core.single_controller.base.collective import DispatchInfo, WorkerContext
from torch import Tensor
from torch.optim import Optimizer

from rl_engine.device_states import DeviceStates
from rl_engine.optim import make_optimizer, set_learning_rate
from rl_engine.packing import ModelInputs
from rl_engine.rng import RandomStream, stream_seed
from rl_engine.sequence_parallel import SequenceParallel
from rl_engine.token_model import TokenModel
from rl_engine.work import WorkCount


class BackendHooks(TrainingEngine):
    """The state of an engine, and the seam between what a backend does in its own way and what all share."""

    backend: ClassVar[str]
    """Name in checkpoints."""

    def __init__(self, role: EngineRole, model: Any, config: EngineConfig, context: WorkerContext) -> None:
        """See ``TrainingEngine``."""
        super().__init__(role, model, config, context)
        self.device = torch.device(context.device)
        self.states = DeviceStates()
        self.random = RandomStream(self.device)
        self.optimizer: Optimizer | None = None
        self.schedule_step = 0
        self.skipped_steps = 0
        """Optimizer steps that were not taken because the gradient was not finite."""
        self.attention = "padded"
        """How attention is computed; see ``rl_engine.attention``."""
        self.sequence_parallel: SequenceParallel | None = None
        """The ranks that this one shares sequences with; opened by the backend."""
        self._module: TokenModel | None = None
        self.work = WorkCount()

    # What a backend must add.

    @abstractmethod
    def open(self) -> None:
        """Join the other workers. Collective; before anything is loaded."""

    @abstractmethod
    def shut(self) -> None:
        """Undo ``open``; also when that failed half way."""

    @property
    @abstractmethod
    def load_dtype(self) -> torch.dtype:
        """Type of the weights that the optimizer changes."""

    @property
    @abstractmethod
    def compute_dtype(self) -> torch.dtype:
        """Type in which the model computes; weights are sent and exported in it, so that generator and trainer agree."""

    @abstractmethod
    def shard(self, module: TokenModel) -> None:
        """Put the model on the device, shared with the other workers, in place. Collective."""

    @abstractmethod
    def before_backward(self, *, is_last: bool) -> None:
        """A forward and backward pass follows; gradients must be added up over ranks by the end of the last one."""

    @abstractmethod
    def after_forward(self) -> None:
        """A pass without gradient is over: drop what was gathered for it."""

    @abstractmethod
    def grad_norm(self, gradients: Sequence[Tensor]) -> float:
        """L2 norm over all parameters and ranks, the same number on every rank. Collective."""

    @abstractmethod
    def gather(self, specs: Sequence[WeightSpec], tensors: Sequence[Tensor]) -> list[Tensor]:
        """Whole tensors in the type their spec says, on every rank; valid until the next call. Collective."""

    @abstractmethod
    def owner_ranks(self, tensor: Tensor) -> tuple[int, ...]:
        """Ranks that hold a part of a tensor of the model. No communication."""

    @abstractmethod
    def local(self, tensor: Tensor) -> Tensor:
        """The plain tensor behind a tensor of the model, its gradient or its optimizer state on this rank."""

    # What it may add.

    def computing(self) -> AbstractContextManager[None]:
        """Around everything that runs kernels of the model or the optimizer."""
        return nullcontext()

    def compute(self, inputs: ModelInputs, wanted: Collection[str]) -> dict[str, Tensor]:
        """Outputs ``wanted`` of one pass, to which a backward pass belongs; see ``TokenModel``."""
        outputs: dict[str, Tensor] = self.module("forward_backward")(inputs, wanted)
        return outputs

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of the scalar ``loss`` to what is accumulated."""
        loss.backward()

    def make_optimizer(self) -> Optimizer:
        """The optimizer of ``parameters()``, whose state tensors are what ``EngineState.OPTIMIZER`` moves."""
        return make_optimizer(self.parameters(), self.config.optim)

    def step(self, optimizer: Optimizer, rate: float, scale: float | None) -> None:
        """Apply what is accumulated; the norm is finite, gradients are dropped afterwards.

        Args:
            optimizer: of ``make_optimizer``.
            rate: learning rate of this step.
            scale: gradients are multiplied by it first; None leaves them.
        """
        if scale is not None:
            torch._foreach_mul_([self.local(gradient) for gradient in self.gradients()], scale)
        set_learning_rate(optimizer, rate)
        with self.computing():
            optimizer.step()

    def on_device(self, tensors: Iterable[Tensor]) -> Iterator[Tensor]:
        """The plain tensors of a state that leaves the device and comes back."""
        return map(self.local, tensors)

    # What every part of an engine asks.

    @property
    def is_trained(self) -> bool:
        """Whether the role has an optimizer."""
        return self.config.optim is not None

    @property
    def compiles(self) -> bool:
        """Whether kernels are compiled: on the CPU, compiling takes longer than it saves in a run of any usual length."""
        return self.config.compiled and self.device.type == "cuda"

    @property
    def pads(self) -> bool:
        """Whether rows are padded instead of packed."""
        return getattr(self.model_config, "use_remove_padding", True) is False

    def module(self, what_for: str) -> TokenModel:
        """The model.

        Raises:
            RlError: the engine is not initialized, or closed.
        """
        if self._module is None:
            msg = f"{what_for} was called on a {self.role} engine before initialize() or after close()"
            raise RlError(msg)
        return self._module

    def parameters(self) -> list[Tensor]:
        """What is trained, each once."""
        return [parameter for parameter in self.module("parameters").parameters() if parameter.requires_grad]

    def gradients(self) -> list[Tensor]:
        """Accumulated gradients."""
        return [parameter.grad for parameter in self.parameters() if parameter.grad is not None]

    def seed_random(self) -> None:
        """Start this rank's random stream as it stands at the current step of the schedule."""
        self.random.seed(stream_seed(self.config.seed, self.context.rank, self.schedule_step))

    def dispatch_info(self) -> DispatchInfo:
        """Ranks that share sequences have the same rows, and the first of them answers."""
        size = self.config.sequence_parallel_size
        group, place = divmod(self.context.rank, size)
        return DispatchInfo(dp_rank=group, dp_size=max(1, self.context.world_size // size), is_collect=place == 0)
