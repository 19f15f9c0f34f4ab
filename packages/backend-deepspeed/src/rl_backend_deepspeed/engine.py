"""The DeepSpeed engine: the model, its gradients or its optimizer's state cut over all workers by ZeRO."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from rl_core.contracts.engine import EngineConfig, EngineRole, EngineState, StepResult
from rl_core.contracts.weights import WeightSpec
from rl_core.single_controller.base.collective import WorkerContext
from rl_engine.base_engine import HFTrainingEngine
from rl_engine.flops import model_flops
from rl_engine.models import dtype_by_name
from rl_engine.optim import make_optimizer
from rl_engine.packing import ModelInputs
from rl_engine.process_group import ProcessGroupLease
from rl_engine.token_model import PolicyModel, TokenModel
from torch import Tensor
from torch.optim import Optimizer

from rl_backend_deepspeed import checkpoint
from rl_backend_deepspeed.config import DeepSpeedConfig
from rl_backend_deepspeed.gradients import Gradients, norm_over_ranks
from rl_backend_deepspeed.mesh import flat_weights, pieces
from rl_backend_deepspeed.process import initialize, open_deepspeed
from rl_backend_deepspeed.settings import check_options, deepspeed_settings
from rl_backend_deepspeed.weights import ZeroStreams, gather, is_cut


class DeepSpeedEngine(HFTrainingEngine):
    """One role's model on DeepSpeed's ZeRO."""

    backend: ClassVar[str] = "deepspeed"

    def __init__(self, role: EngineRole, model: Any, config: EngineConfig, context: WorkerContext) -> None:
        """See ``TrainingEngine``; ``config.plugin`` is a ``DeepSpeedConfig`` or None."""
        super().__init__(role, model, config, context)
        self.options: DeepSpeedConfig = config.plugin or DeepSpeedConfig()
        self.streams: ZeroStreams = ZeroStreams(self)
        self._lease = ProcessGroupLease()
        self._zero: Any = None  # DeepSpeed's engine
        self._gradients: Gradients | None = None
        self._flops: Any = None

    @property
    def stage(self) -> int:
        """Of ZeRO."""
        return self.options.zero_stage

    @property
    def load_dtype(self) -> torch.dtype:
        """See ``HFTrainingEngine``; what is not trained needs no weights beside those it computes with."""
        return dtype_by_name(self.options.model_dtype) if self.is_trained else self.compute_dtype

    @property
    def compute_dtype(self) -> torch.dtype:
        """See ``HFTrainingEngine``."""
        if self.options.dtype is not None:
            return dtype_by_name(self.options.dtype)
        return torch.bfloat16 if self.device.type == "cuda" else dtype_by_name(self.options.model_dtype)

    @property
    def _is_bf16(self) -> bool:
        return self.compute_dtype == torch.bfloat16

    # Life.

    def open(self) -> None:
        """See ``HFTrainingEngine``."""
        check_options(self.options, is_trained=self.is_trained, bf16=self._is_bf16)
        self._settings = deepspeed_settings(self.options, bf16=self._is_bf16)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        self._lease.acquire(self.context, self.options.collective_timeout_s)
        open_deepspeed(self.device)

    def shut(self) -> None:
        """See ``HFTrainingEngine``."""
        zero, self._zero, self._gradients = self._zero, None, None
        if zero is not None:
            zero.destroy()
        self._lease.release()

    def initialize(self) -> None:
        """See ``TrainingEngine``; FLOPs were counted while tensors had their shapes."""
        super().initialize()
        self.work.model = self._flops

    def shard(self, module: TokenModel) -> None:
        """See ``HFTrainingEngine``."""
        self._flops = model_flops(
            module.backbone,
            module.hf_config,
            head=module.head if isinstance(module, PolicyModel) else None,
            is_frozen=module.adapter is not None,
        )
        for tensor in (*module.parameters(), *module.buffers()):
            if not tensor.untyped_storage().resizable():  # a mapped file, which could not be offloaded
                tensor.data = tensor.data.clone()
        if not self.is_trained and self.stage < 3:
            module.to(self.device)
            return
        loaded = {id(parameter): parameter.data for parameter in module.parameters() if parameter.requires_grad}
        arguments: dict[str, Any] = {"model": module, "config": self._settings}
        if self.is_trained:
            trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
            arguments |= {"optimizer": make_optimizer(trained, self.config.optim), "model_parameters": trained}
        if self.stage == 3:
            self._show_head(module)
        self._zero, optimizer = initialize(**arguments)
        if self.is_trained:
            self._gradients = Gradients(optimizer, self.stage)
            self._keep_precision(module, optimizer, loaded)

    def _show_head(self, module: TokenModel) -> None:
        """Weights behind the backbone are used without calling their layer, so DeepSpeed must be told by whom.

        It would find out while the model computes, but then the second pass differs from what it noted of the first.
        """
        from deepspeed.runtime.zero import register_external_parameter  # noqa: PLC0415 - after open_deepspeed

        inner = {id(parameter) for parameter in module.backbone.parameters()}
        behind = [parameter for parameter in module.parameters() if id(parameter) not in inner]
        if isinstance(module, PolicyModel):
            behind = list(module.head.parameters())  # tied ones are the backbone's too
        for parameter in behind:
            register_external_parameter(module, parameter)

    def _keep_precision(self, module: TokenModel, optimizer: Any, loaded: dict[int, Tensor]) -> None:
        """DeepSpeed takes the weights that it changes from those it computes with, after these were rounded."""
        if self.compute_dtype == torch.float32:
            return
        ids = {id(parameter): str(id(parameter)) for parameter in module.parameters()}
        flats = flat_weights(optimizer, self.stage)
        with torch.no_grad():
            for piece in pieces(optimizer, self.stage, ids, self.context.rank):
                source = loaded[int(piece.name)].reshape(-1)[piece.start : piece.start + piece.length]
                flats[piece.group][piece.offset : piece.offset + piece.length].copy_(source)

    def make_optimizer(self) -> Optimizer:
        """DeepSpeed's, around the one that ``optim`` names."""
        optimizer: Optimizer = self._zero.optimizer
        return optimizer

    def _make_states(self, module: TokenModel) -> None:
        super()._make_states(module)
        if self.is_trained:
            self.states.add(EngineState.OPTIMIZER, self._optimizer_tensors)

    def _optimizer_tensors(self) -> Iterator[Tensor]:
        """State and float32 weights, where these are not the very memory of the model's."""
        optimizer: Any = self.optimizer
        weights = {
            tensor.untyped_storage().data_ptr() for tensor in self.on_device(self._all_tensors(self.module("offload")))
        }
        tensors = [*flat_weights(optimizer, self.stage), *_state_tensors(optimizer)]
        yield from (tensor for tensor in tensors if tensor.untyped_storage().data_ptr() not in weights)

    # Computing.

    def compute(self, inputs: ModelInputs, wanted: Collection[str]) -> dict[str, Tensor]:
        """See ``HFTrainingEngine``."""
        found: dict[str, Tensor] = self._zero(inputs, wanted)
        return found

    def before_backward(self, *, is_last: bool) -> None:
        """See ``HFTrainingEngine``; DeepSpeed learns when a step is due, not when a mini-batch ends."""
        assert self._gradients is not None  # the states are there
        self._gradients.is_any = True

    def backward(self, loss: Tensor) -> None:
        """See ``HFTrainingEngine``; stage 3 averages over ranks whatever it is told, so its sum is one of multiples."""
        scale = self.context.world_size if self.stage == 3 else 1
        self._zero.backward(loss * scale, scale_wrt_gas=False)

    def after_forward(self) -> None:
        """See ``HFTrainingEngine``; DeepSpeed's hooks have dropped it."""

    def gradients(self) -> list[Tensor]:
        """See ``HFTrainingEngine``."""
        return [] if self._gradients is None else list(self._gradients.tensors())

    def grad_norm(self, gradients: Sequence[Tensor]) -> float:
        """See ``HFTrainingEngine``; stage 1 adds gradients up over ranks only now."""
        assert self._gradients is not None  # the states are there
        return norm_over_ranks(self._gradients.finish(), self.device)

    def optimizer_step(self) -> StepResult:
        """See ``TrainingEngine``."""
        result = super().optimizer_step()
        if self._gradients is not None:
            self._gradients.drop()
        return result

    def step(self, optimizer: Optimizer, rate: float, scale: float | None) -> None:
        """See ``HFTrainingEngine``."""
        assert self._gradients is not None  # the states are there
        if not self._gradients.is_any:
            return
        zero: Any = optimizer
        if scale is not None:
            torch._foreach_mul_([part for group in zero.averaged_gradients.values() for part in group], scale)
        for group in zero.param_groups:
            group["lr"] = rate
        zero.step()

    # What is where.

    def local(self, tensor: Tensor) -> Tensor:
        """See ``HFTrainingEngine``."""
        part: Tensor = tensor.ds_tensor if is_cut(tensor) else tensor  # type: ignore[attr-defined]
        return part

    def on_device(self, tensors: Iterable[Tensor]) -> Iterator[Tensor]:
        """See ``HFTrainingEngine``; small tensors of stage 3 are there whole beside this rank's part."""
        for tensor in tensors:
            yield self.local(tensor)
            if is_cut(tensor) and tensor.numel():
                yield tensor.data

    # Weights.

    def gather(self, specs: Sequence[WeightSpec], tensors: Sequence[Tensor]) -> list[Tensor]:
        """See ``HFTrainingEngine``."""
        return gather(specs, [self.streams.real(tensor) for tensor in tensors], self.device)

    def owner_ranks(self, tensor: Tensor) -> tuple[int, ...]:
        """See ``HFTrainingEngine``."""
        world = self.context.world_size
        real = self.streams.real(tensor)
        if not is_cut(real):
            return tuple(range(world))
        numbers = tensor.numel()
        part = -(-numbers // world)
        return tuple(rank for rank in range(world) if rank * part < max(numbers, 1))

    # Checkpoints.

    def save(self, directory: Path) -> None:
        """See ``TrainingEngine``."""
        checkpoint.save(self, directory)

    def load(self, directory: Path) -> None:
        """See ``TrainingEngine``."""
        checkpoint.load(self, directory)


def _state_tensors(optimizer: Any) -> Iterator[Tensor]:
    for state in optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, Tensor))
