"""The FSDP2 engine: every block of the model is cut over all workers and gathered while it computes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from rl_core.contracts.engine import EngineConfig, EngineRole, SaveState
from rl_core.contracts.weights import WeightSpec
from rl_core.errors import ConfigError
from rl_core.single_controller.base.collective import WorkerContext
from rl_engine.base_engine import HFTrainingEngine
from rl_engine.determinism import deterministic_kernels, prepare_determinism
from rl_engine.models import dtype_by_name
from rl_engine.process_group import ProcessGroupLease
from rl_engine.token_model import TokenModel
from torch import Tensor, nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from rl_backend_fsdp import checkpoint
from rl_backend_fsdp.config import FSDPConfig
from rl_backend_fsdp.mesh import Meshes, check_reshard, open_meshes, shard_size
from rl_backend_fsdp.weights import WeightGatherer, owner_ranks
from rl_backend_fsdp.writing import Writing


class FSDPEngine(HFTrainingEngine):
    """One role's model on PyTorch FSDP2."""

    backend: ClassVar[str] = "fsdp"

    def __init__(self, role: EngineRole, model: Any, config: EngineConfig, context: WorkerContext) -> None:
        """See ``TrainingEngine``; ``config.plugin`` is an ``FSDPConfig`` or None."""
        super().__init__(role, model, config, context)
        self.options: FSDPConfig = config.plugin or FSDPConfig()
        self._lease = ProcessGroupLease()
        self._meshes: Meshes | None = None
        self._writing: Writing | None = None

    @classmethod
    def alone(cls, config: EngineConfig, dtype: str | None = None) -> EngineConfig:
        """See ``TrainingEngine``."""
        options: FSDPConfig = config.plugin or FSDPConfig()
        plugin = replace(
            options,
            fsdp_size=-1,
            reshard_after_forward=True,
            offload_policy=False,
            dtype=options.dtype if dtype is None else dtype,
        )
        return replace(super().alone(config), plugin=plugin)

    @property
    def load_dtype(self) -> torch.dtype:
        """See ``HFTrainingEngine``."""
        return dtype_by_name(self.options.model_dtype)

    @property
    def compute_dtype(self) -> torch.dtype:
        """See ``HFTrainingEngine``."""
        if self.options.dtype is not None:
            return dtype_by_name(self.options.dtype)
        return torch.bfloat16 if self.device.type == "cuda" else self.load_dtype

    # Life.

    def open(self) -> None:
        """See ``HFTrainingEngine``."""
        context = self.context
        shards = shard_size(self.options.fsdp_size, context.world_size)
        check_reshard(self.options.reshard_after_forward, shards)
        if self.options.full_determinism:
            prepare_determinism()
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        self._lease.acquire(self.context, self.options.collective_timeout_s)
        self._meshes = open_meshes(
            self.device.type, context.rank, context.world_size, shards, self.config.sequence_parallel_size
        )
        self.sequence_parallel = self._meshes.sequence

    def shut(self) -> None:
        """See ``HFTrainingEngine``; what is being written is no checkpoint yet, and nobody will finish it."""
        if self._writing is not None:
            self._writing.wait()
            self._writing = None
        meshes, self._meshes = self._meshes, None
        self.sequence_parallel = None
        if meshes is not None:
            meshes.close()
        self._lease.release()

    @property
    def meshes(self) -> Meshes:
        """How the workers are grouped."""
        assert self._meshes is not None  # open() came first
        return self._meshes

    def shard(self, module: TokenModel) -> None:
        """See ``HFTrainingEngine``."""
        options: dict[str, Any] = {"mesh": self.meshes.model, "mp_policy": self._precision()}
        if self.options.offload_policy:
            options["offload_policy"] = CPUOffloadPolicy(pin_memory=self.device.type == "cuda")
        blocks = self._blocks(module)
        if self.context.world_size == 1 and self.compute_dtype == self.load_dtype and not self.options.offload_policy:
            # One worker has all of every tensor, in the type it computes in: there is nothing to cut, gather or convert.
            module.to(self.device)
            for tensor in (*module.parameters(), *module.buffers()):
                if not tensor.untyped_storage().resizable():  # a mapped file, which could not be offloaded
                    tensor.data = tensor.data.clone()
            return
        for block in blocks:
            fully_shard(block, reshard_after_forward=self.options.reshard_after_forward, **options)
        # What is left - embedding, last norm, output layer - is needed at both ends of a pass.
        fully_shard(module, reshard_after_forward=False, **options)
        for part in sharded_parts(module):
            # Gradients are sums over ranks; FSDP2 would average them.
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)
        if self.options.forward_prefetch:
            sharded: Any = blocks
            for block, following in pairwise(sharded):
                block.set_modules_to_forward_prefetch([following])

    def _precision(self) -> MixedPrecisionPolicy:
        if self.compute_dtype == self.load_dtype:
            return MixedPrecisionPolicy()
        return MixedPrecisionPolicy(
            param_dtype=self.compute_dtype, reduce_dtype=dtype_by_name(self.options.reduce_dtype)
        )

    def _blocks(self, module: TokenModel) -> list[nn.Module]:
        names = self.options.wrap_policy.transformer_layer_cls_to_wrap
        if names is None:
            return module.layers()
        blocks = [block for block in module.modules() if type(block).__name__ in names]
        if not blocks:
            msg = (
                f"fsdp_config.wrap_policy.transformer_layer_cls_to_wrap is {list(names)}, but the model has no such block; its "
                f"own choice is {sorted({type(block).__name__ for block in module.layers()})}"
            )
            raise ConfigError(msg)
        return blocks

    # Computing.

    def before_backward(self, *, is_last: bool) -> None:
        """See ``HFTrainingEngine``."""
        root = self.module("forward_backward")
        if isinstance(root, FSDPModule):
            root.set_requires_gradient_sync(is_last or not self.options.use_no_sync_for_gradient_accumulation)
            # Copies of the model need the sum of their gradients once, whatever is added up within each of them.
            root.set_requires_all_reduce(is_last)

    def computing(self) -> AbstractContextManager[None]:
        """See ``HFTrainingEngine``."""
        return deterministic_kernels(wanted=self.options.full_determinism)

    def after_forward(self) -> None:
        """See ``HFTrainingEngine``; a gathered root would be used again by the next pass, whatever happened meanwhile."""
        if self._module is not None:
            for part in sharded_parts(self._module):
                part.reshard()

    def grad_norm(self, gradients: Sequence[Tensor]) -> float:
        """See ``HFTrainingEngine``."""
        norms = torch._foreach_norm([self.local(gradient) for gradient in gradients]) if gradients else []
        squares = [norm.to(self.device, torch.float64).square() for norm in norms]
        total = torch.stack([torch.zeros((), dtype=torch.float64, device=self.device), *squares]).sum()
        dist.all_reduce(total, group=self.meshes.shard_group)
        return float(total.sqrt())

    def on_device(self, tensors: Iterable[Tensor]) -> Iterator[Tensor]:
        """See ``HFTrainingEngine``; what is always on the host need not leave the device."""
        return (tensor for tensor in super().on_device(tensors) if tensor.device.type == self.device.type)

    def local(self, tensor: Tensor) -> Tensor:
        """See ``HFTrainingEngine``."""
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor

    # Weights.

    def gather(self, specs: Sequence[WeightSpec], tensors: Sequence[Tensor]) -> list[Tensor]:
        """See ``HFTrainingEngine``."""
        return WeightGatherer(self.meshes.shard_group, self.device).gather(specs, tensors)

    def owner_ranks(self, tensor: Tensor) -> tuple[int, ...]:
        """See ``HFTrainingEngine``."""
        return owner_ranks(tensor, self.meshes.shard_size, self.context.world_size)

    # Checkpoints.

    def save(self, directory: Path) -> None:
        """See ``TrainingEngine``."""
        self.finish_save()
        checkpoint.start(self, directory, in_background=False).finish()

    def start_save(self, directory: Path) -> None:
        """See ``TrainingEngine``; a copy of what this rank holds stays in host memory until it is written."""
        self.finish_save()
        self._writing = checkpoint.start(self, directory, in_background=True)

    def poll_save(self) -> SaveState:
        """See ``TrainingEngine``."""
        return SaveState.WRITTEN if self._writing is None else self._writing.state

    def finish_save(self) -> None:
        """See ``TrainingEngine``."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.finish()

    def load(self, directory: Path) -> None:
        """See ``TrainingEngine``."""
        self.finish_save()
        checkpoint.load(self, directory)


def sharded_parts(module: nn.Module) -> Iterator[FSDPModule]:
    """Everything in ``module`` that is sharded on its own, the root among them."""
    for part in module.modules():
        if isinstance(part, FSDPModule):
            yield part
