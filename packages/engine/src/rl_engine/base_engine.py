"""A training engine for Hugging Face models, all but what a backend does in its own way.

::

    HFTrainingEngine                               a backend (hooks below)
    load, check, wrap the model          ─────▶    open, shard
    cut, pack, forward, loss, backward   ─────▶    before_backward, after_forward
    norm, clip, skip, step, schedule     ─────▶    grad_norm, scale_gradients
    manifest, stream, export             ─────▶    gather, owner_ranks
    what is on the device                ─────▶    local
    save, load                                     all of it
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar

import torch
from rl_core.contracts.engine import (
    EngineConfig,
    EngineRole,
    EngineState,
    LossFunction,
    StepResult,
    TokenOutputs,
    TrainingEngine,
)
from rl_core.contracts.weights import WeightBucket, WeightManifest, WeightSpec, WeightStream
from rl_core.errors import ConfigError, RlError, ShapeError
from rl_core.metrics import Metric, merge_metrics
from rl_core.single_controller.base.collective import DispatchInfo, WorkerContext
from rl_dataproto import DataProto
from torch import Tensor
from torch.optim import Optimizer

from rl_engine.attention import choose_attention
from rl_engine.device_states import DeviceStates
from rl_engine.engine_record import EngineRecord, shapes_of
from rl_engine.engine_streams import EngineStreams
from rl_engine.exporting import export_engine
from rl_engine.loading import load_token_model
from rl_engine.lora.export import export_adapter
from rl_engine.micro_batches import MicroBatch, micro_batches, require_columns, rows_in_order
from rl_engine.optim import check_schedule, learning_rate_at, make_optimizer, set_learning_rate
from rl_engine.rng import RandomStream, stream_seed
from rl_engine.self_check import require_separate_sequences, two_sequences
from rl_engine.sequence_parallel import SequenceParallel, check_sequence_parallel
from rl_engine.sequence_parallel_attention import use_sequence_parallel
from rl_engine.token_model import PolicyModel, TokenModel


class HFTrainingEngine(TrainingEngine):
    """Base of training backends whose model is a transformers module in this process."""

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
        self.streams = EngineStreams(self)

    # What a backend adds.

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

    def computing(self) -> AbstractContextManager[None]:
        """Around everything that runs kernels of the model or the optimizer."""
        return nullcontext()

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

    # Life.

    def initialize(self) -> None:
        """See ``TrainingEngine``."""
        if self._module is not None:
            msg = f"initialize was called twice on this {self.role} engine; close it and build a new one"
            raise RlError(msg)
        check_sequence_parallel(self.config.sequence_parallel_size, self.context.world_size, pads=self.pads)
        if self.config.optim is not None:
            check_schedule(self.config.optim, self.config.total_training_steps)
        try:
            self.open()
            module = load_token_model(
                self.role,
                self.model_config,
                self.load_dtype,
                temperature=self.config.temperature,
                is_trained=self.is_trained,
                frozen_dtype=self.compute_dtype,
                seed=self.config.seed,
            )
            self.shard(module)
            self._module = module
            self._choose_attention(module)
            self._share_sequences(module)
            self._check_model(module)
            if self.compiles:  # after the trials above, for which it would not pay
                module.compile_kernels()
            self._make_states(module)
            self.streams.find_base()
        except BaseException:
            self.close()
            raise
        self.seed_random()

    def _make_states(self, module: TokenModel) -> None:
        self.states.add(EngineState.PARAMETERS, lambda: self.on_device(self._all_tensors(module)))
        if self.config.optim is None:
            return
        self.optimizer = optimizer = make_optimizer(self.parameters(), self.config.optim)
        set_learning_rate(optimizer, self.learning_rate())
        self.states.add(EngineState.GRADIENTS, lambda: self.on_device(self.gradients()))
        self.states.add(EngineState.OPTIMIZER, lambda: self.on_device(_state_tensors(optimizer)))

    def on_device(self, tensors: Iterable[Tensor]) -> Iterator[Tensor]:
        """The plain tensors of a state that leaves the device and comes back."""
        return map(self.local, tensors)

    @staticmethod
    def _all_tensors(module: TokenModel) -> Iterable[Tensor]:
        yield from module.parameters()
        yield from module.buffers()

    @torch.no_grad()
    def _choose_attention(self, module: TokenModel) -> None:
        """Find the fastest attention that this model and machine have for packed sequences."""
        if self.pads:
            return
        hidden_states = self._trial(module)
        self.attention = choose_attention(module.hf_config, self.device, self.compute_dtype, hidden_states)

    @torch.no_grad()
    def _share_sequences(self, module: TokenModel) -> None:
        """Cut every pack over the ranks that share it, if the model is the same with it."""
        parallel = self.sequence_parallel
        if parallel is None:
            return
        hidden_states = self._trial(module)
        expected = hidden_states()
        module.sequence_parallel = parallel
        use_sequence_parallel(module.hf_config, parallel, hidden_states, expected)

    def _trial(self, module: TokenModel) -> Callable[[], Tensor]:
        """A pass over two packed sequences, always the same. Collective."""
        inputs = two_sequences(module.hf_config, 0).to(self.device)
        module.eval()

        def hidden_states() -> Tensor:
            found: Tensor = module(inputs, {"hidden"})["hidden"]
            self.after_forward()
            return found

        return hidden_states

    @torch.no_grad()
    def _check_model(self, module: TokenModel) -> None:
        """Ask the model what it does to logits, and whether packed sequences stay apart."""
        module.eval()
        if isinstance(module, PolicyModel):
            module(two_sequences(module.hf_config, 0).to(self.device), {"transform"})
            self.after_forward()
        if not self.pads:
            require_separate_sequences(
                lambda inputs: module(inputs, {"hidden"})["hidden"], module.hf_config, self.device
            )
            self.after_forward()

    def close(self) -> None:
        """See ``TrainingEngine``."""
        self.states.clear()
        self.optimizer = None
        self._module = None
        self.streams.clear()
        self.shut()

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

    # Computing.

    def forward(self, batch: DataProto, outputs: Collection[str]) -> DataProto | None:
        """See ``TrainingEngine``."""
        module = self.module("forward")
        self.states.require("forward", EngineState.PARAMETERS)
        wanted = self._known_outputs(module, outputs)
        found: dict[str, list[tuple[MicroBatch, Tensor]]] = {name: [] for name in wanted}
        module.eval()
        with torch.no_grad(), self.computing():
            size, budget = self.config.forward_micro_batch_size, self.config.forward_max_tokens
            require_columns(batch, "input_ids", "responses")
            read = batch.select(batch_keys=["input_ids", "responses"], non_tensor_batch_keys=[])
            for micro in self._micro_batches(read, size, budget):
                for name, per_token in module(micro.inputs, wanted).items():
                    found[name].append((micro, per_token))
        self.after_forward()
        if not self.dispatch_info().is_collect:
            return None
        columns = {name: rows_in_order(found[name], len(batch), self._output_dtype) for name in sorted(wanted)}
        return DataProto.from_dict(tensors=columns)

    def forward_backward(self, batch: DataProto, loss_fn: LossFunction) -> Mapping[str, Metric] | None:
        """See ``TrainingEngine``."""
        module = self.module("forward_backward")
        self.states.require("forward_backward", EngineState.PARAMETERS, EngineState.GRADIENTS)
        wanted = self._known_outputs(module, loss_fn.outputs)
        require_columns(batch, "response_mask")
        reports: list[Mapping[str, Metric]] = [{"loss": Metric(0.0, "sum", keep_nan=True, count=0)}]
        module.train()
        with self.random.active(), self.computing():
            for micro in self._micro_batches(batch, self.config.micro_batch_size, self.config.max_tokens):
                self.before_backward(is_last=micro.is_last)
                outputs = module(micro.inputs, wanted)
                # Without rows, or with a loss that depends on none, there still is a backward pass in which ranks meet.
                share = torch.stack([values[:0].sum() for values in outputs.values()]).sum()
                if not micro.is_empty:
                    loss, metrics = self._loss(micro, outputs, loss_fn)
                    share = share + loss
                    reports.append(metrics)
                share.backward()
        return merge_metrics(reports) if self.dispatch_info().is_collect else None

    def _micro_batches(self, batch: DataProto, size: int | None, max_tokens: int | None) -> Iterator[MicroBatch]:
        # A token is predicted, and its state valued, one place before it; a reward model judges what it has read.
        shift = 0 if self.role is EngineRole.REWARD else 1
        return micro_batches(
            batch,
            size=size,
            max_tokens=None if max_tokens is None else max_tokens * self.config.sequence_parallel_size,
            padded=self.pads,
            shift=shift,
            collective=self.context.collective,
            device=self.device,
        )

    def _known_outputs(self, module: TokenModel, outputs: Collection[str]) -> frozenset[str]:
        if not outputs or set(outputs) - module.outputs:
            msg = f"outputs {sorted(outputs)} were asked of a {self.role} engine; it has {sorted(module.outputs)}"
            raise ConfigError(msg)
        return frozenset(outputs)

    @property
    def _output_dtype(self) -> torch.dtype:
        return torch.float64 if self.compute_dtype == torch.float64 else torch.float32

    def _loss(
        self, micro: MicroBatch, outputs: Mapping[str, Tensor], loss_fn: LossFunction
    ) -> tuple[Tensor, dict[str, Metric]]:
        seen = {name: micro.padded(values) for name, values in outputs.items()}
        loss, metrics = loss_fn(TokenOutputs(micro.response_mask(), **seen), micro.rows)
        if loss.ndim:
            msg = f"a loss function returns a scalar; {type(loss_fn).__name__} returned shape {tuple(loss.shape)}"
            raise ShapeError(msg)
        return loss, {**metrics, "loss": Metric(float(loss.detach()), "sum", keep_nan=True)}

    # Stepping.

    def optimizer_step(self) -> StepResult:
        """See ``TrainingEngine``."""
        self.module("optimizer_step")
        self.states.require("optimizer_step", *EngineState)
        optimizer = self.optimizer
        assert optimizer is not None  # the states are there
        norm = self.grad_norm(self.gradients())
        rate = self.learning_rate()
        skipped = not math.isfinite(norm)
        if skipped:
            self.skipped_steps += 1
        else:
            limit = self.config.grad_clip
            if limit is not None and norm > limit:
                torch._foreach_mul_([self.local(gradient) for gradient in self.gradients()], limit / norm)
            set_learning_rate(optimizer, rate)
            with self.computing():
                optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return StepResult(norm, skipped=skipped, learning_rate=rate)

    def lr_scheduler_step(self) -> float:
        """See ``TrainingEngine``."""
        self.module("lr_scheduler_step")
        if not self.is_trained:
            msg = f"lr_scheduler_step was called on a {self.role} engine without an `optim` section: it has no schedule"
            raise ConfigError(msg)
        self.schedule_step += 1
        return self.learning_rate()

    def learning_rate(self) -> float:
        """Rate of the next optimizer step."""
        return learning_rate_at(self.schedule_step, self.config.optim, self.config.total_training_steps)

    # Weights.

    def weight_manifest(self, stream: WeightStream = "weights") -> WeightManifest:
        """See ``TrainingEngine``."""
        return self.streams.manifest(stream)

    def named_weights(self, bucket_bytes: int, stream: WeightStream = "weights") -> Iterator[WeightBucket]:
        """See ``TrainingEngine``."""
        return self.streams.buckets(bucket_bytes, stream)

    def export_hf(self, directory: Path) -> None:
        """See ``TrainingEngine``; with adapters, ``model.lora.export`` says whether they are merged or alone."""
        adapter = self.module("export_hf").adapter
        if adapter is not None and adapter.settings.export == "adapter":
            export_adapter(self, adapter, directory)
        else:
            export_engine(self, directory)

    def disable_adapter(self) -> AbstractContextManager[None]:
        """See ``TrainingEngine``."""
        adapter = self.module("disable_adapter").adapter
        return nullcontext() if adapter is None else adapter.off()

    def record(self) -> EngineRecord:
        """What a checkpoint says about this engine."""
        return EngineRecord(
            backend=self.backend,
            role=self.role.value,
            shapes=shapes_of(self.streams.kept),
            world_size=self.context.world_size,
            schedule_step=self.schedule_step,
            skipped_steps=self.skipped_steps,
            has_optimizer=self.is_trained,
            base=self.streams.base,
        )

    # What is where.

    def offload(self, states: Collection[EngineState]) -> None:
        """See ``TrainingEngine``."""
        self.module("offload")
        self.states.offload(states)

    def onload(self, states: Collection[EngineState]) -> None:
        """See ``TrainingEngine``."""
        self.module("onload")
        self.states.onload(states)

    def resident(self) -> frozenset[EngineState]:
        """See ``TrainingEngine``."""
        return self.states.resident()

    def device_bytes(self) -> int:
        """Bytes of this engine's states on the device now."""
        return self.states.device_bytes()


def _state_tensors(optimizer: Optimizer) -> Iterator[Tensor]:
    for state in optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, Tensor))
