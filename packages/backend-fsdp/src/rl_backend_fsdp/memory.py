"""What a role of this engine holds on a device, predicted from its configuration. Loads no torch."""

from __future__ import annotations

from typing import Final

from rl_core.config.memory_question import FORWARD, UPDATE, MemoryEstimate, TrainingMemoryQuestion
from rl_engine.memory_model import TrainingShape, adapter_parameters, optimizer_numbers, training_memory
from rl_engine.model_shape import ModelShape, read_shape
from rl_engine.number_formats import bytes_of

from rl_backend_fsdp.config import FSDPConfig

_FUSED: Final = ("Adam", "AdamW")
"""See ``rl_engine.optim``: torch fuses the step of these for sharded weights."""


def predict_memory(question: TrainingMemoryQuestion) -> MemoryEstimate:
    """See ``rl_core.config.memory_question``.

    Raises:
        ConfigError: the model's sizes are not known here.
    """
    found = training_memory(training_shape(question, read_shape(question.model)))
    states = {"parameters": found.parameters, "gradients": found.gradients, "optimizer": found.optimizer}
    return MemoryEstimate(states=states, work={UPDATE: found.update, FORWARD: found.forward})


def training_shape(question: TrainingMemoryQuestion, model: ModelShape) -> TrainingShape:
    """The question in the terms of the memory model."""
    options: FSDPConfig = question.plugin or FSDPConfig()
    workers = question.num_workers
    shards = min(workers, options.fsdp_size) if options.fsdp_size > 0 else workers
    weight = bytes_of(options.model_dtype)
    compute = bytes_of(options.dtype or ("bf16" if question.is_gpu else options.model_dtype))
    is_alone = workers == 1 and weight == compute and not options.offload_policy
    rank = 0 if question.role == "reference" else int(getattr(question.model, "lora_rank", 0) or 0)
    optimizer = str(getattr(question.optim, "optimizer", "AdamW"))
    return TrainingShape(
        model=model,
        shards=shards,
        weight_bytes=weight,
        compute_bytes=compute,
        reduce_bytes=bytes_of(options.reduce_dtype) if weight != compute else weight,
        gathers=not is_alone,
        kept_share=_kept_share(options.reshard_after_forward, shards),
        keeps_gradients_whole=options.use_no_sync_for_gradient_accumulation,
        is_offloaded=options.offload_policy,
        scores_tokens=question.role in ("policy", "reference"),
        optimizer_numbers=optimizer_numbers(question.optim),
        is_fused=optimizer in _FUSED,
        adapter_parameters=adapter_parameters(model, rank),
        update_tokens=question.update_tokens if question.optim is not None else 0,
        forward_tokens=question.forward_tokens,
        recomputes=bool(getattr(question.model, "enable_gradient_checkpointing", True)),
        compiled=question.compiled and question.is_gpu,
        accumulates=question.accumulates,
        with_entropy=question.with_entropy,
    )


def _kept_share(reshard: bool | int, shards: int) -> float:
    if isinstance(reshard, bool):
        return 0.0 if reshard else 1.0
    return 1.0 / reshard if 0 < reshard < shards else 0.0
