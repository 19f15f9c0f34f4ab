"""A training engine for Hugging Face models: what a backend subclasses.

::

    BackendHooks        backend_hooks   what a backend must and may implement; state that all parts share
      PassesEngine      passes          forward, forward_backward: cut, pack, compute, join
        HFTrainingEngine   here         life, stepping, weights and exports, what is on the device
          a backend

    what all backends share                            hooks of the backend
    load, ask (trials), wrap the model   ─────▶    open, shard, shut
    cut, pack, forward, loss             ─────▶    before_backward, backward, after_forward, computing
    norm, clip, skip, schedule           ─────▶    grad_norm, make_optimizer, step
    manifest, stream, export             ─────▶    gather, owner_ranks
    what is on the device                ─────▶    local, on_device
    record of a checkpoint               ─────▶    save, load
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from rl_core.contracts.engine import EngineConfig, EngineRole, EngineState, StepResult
from rl_core.contracts.weights import WeightBucket, WeightManifest, WeightStream
from rl_core.errors import ConfigError, RlError
from rl_core.single_controller.base.collective import WorkerContext
from torch import Tensor
from torch.optim import Optimizer

from rl_engine.engine_record import EngineRecord, shapes_of
from rl_engine.engine_streams import EngineStreams
from rl_engine.exporting import export_engine
from rl_engine.flops import model_flops
from rl_engine.loading import load_token_model
from rl_engine.lora.export import export_adapter
from rl_engine.optim import check_schedule, learning_rate_at, set_learning_rate
from rl_engine.passes import PassesEngine
from rl_engine.sequence_parallel import check_sequence_parallel
from rl_engine.token_model import PolicyModel, TokenModel
from rl_engine.trials import check_model, find_attention, share_sequences


class HFTrainingEngine(PassesEngine):
    """Base of training backends whose model is a transformers module in this process."""

    def __init__(self, role: EngineRole, model: Any, config: EngineConfig, context: WorkerContext) -> None:
        """See ``TrainingEngine``."""
        super().__init__(role, model, config, context)
        self.streams = EngineStreams(self)

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
            self.work.model = model_flops(
                module.backbone,
                module.hf_config,
                head=module.head if isinstance(module, PolicyModel) else None,
                is_frozen=module.adapter is not None,
            )
            find_attention(self, module)
            share_sequences(self, module)
            check_model(self, module)
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
        self.optimizer = optimizer = self.make_optimizer()
        set_learning_rate(optimizer, self.learning_rate())
        self.states.add(EngineState.GRADIENTS, lambda: self.on_device(self.gradients()))
        self.states.add(EngineState.OPTIMIZER, lambda: self.on_device(_state_tensors(optimizer)))

    @staticmethod
    def _all_tensors(module: TokenModel) -> Iterable[Tensor]:
        yield from module.parameters()
        yield from module.buffers()

    def close(self) -> None:
        """See ``TrainingEngine``."""
        self.states.clear()
        self.optimizer = None
        self._module = None
        self.streams.clear()
        self.shut()

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
            self.step(optimizer, rate, limit / norm if limit is not None and norm > limit else None)
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

    def state_bytes(self) -> Mapping[EngineState, int]:
        """See ``TrainingEngine``."""
        return self.states.bytes_by_state()

    def device_bytes(self) -> int:
        """Bytes of this engine's states on the device now."""
        return self.states.device_bytes()


def _state_tensors(optimizer: Optimizer) -> Iterator[Tensor]:
    for state in optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, Tensor))
