"""What a role of this engine holds on a device, predicted from its configuration. Loads no torch."""

from __future__ import annotations

from rl_core.config.memory_question import FORWARD, UPDATE, MemoryEstimate, TrainingMemoryQuestion
from rl_engine.memory_model import TrainingShape, adapter_parameters, optimizer_numbers, training_memory
from rl_engine.model_shape import ModelShape, read_shape
from rl_engine.number_formats import bytes_of

from rl_backend_deepspeed.config import DeepSpeedConfig


def predict_memory(question: TrainingMemoryQuestion) -> MemoryEstimate:
    """See ``rl_core.config.memory_question``.

    ::

        stage   weights    gradients   optimizer: float32 weights, and its numbers
        0       whole      -           -
        1       whole      whole       a part
        2       whole      a part      a part
        3       a part     a part      a part

    Raises:
        ConfigError: the model's sizes are not known here.
    """
    options: DeepSpeedConfig = question.plugin or DeepSpeedConfig()
    model = read_shape(question.model)
    whole = training_memory(_shape(question, options, model, shards=1))
    work = training_memory(_shape(question, options, model, shards=question.num_workers))
    stage, workers = options.zero_stage, question.num_workers
    compute = bytes_of(_format(options, question))
    trained = 0 if question.optim is None else whole.gradients
    numbers = trained // 4  # gradients are kept in float32
    parameters = whole.parameters
    if question.optim is not None and not getattr(question.model, "lora_rank", 0):
        parameters = numbers * compute
    masters = trained  # DeepSpeed has float32 weights of its own even where the model computes in float32
    states = {
        "parameters": _part(parameters, workers if stage == 3 else 1),
        "gradients": _part(trained, workers if stage >= 2 else 1),
        "optimizer": _part(masters + whole.optimizer, workers),
    }
    buckets = 0 if question.optim is None else 4 * min(numbers, options.reduce_bucket_size)
    return MemoryEstimate(states=states, work={UPDATE: work.update + buckets, FORWARD: work.forward})


def _shape(
    question: TrainingMemoryQuestion, options: DeepSpeedConfig, model: ModelShape, *, shards: int
) -> TrainingShape:
    rank = 0 if question.role == "reference" else int(getattr(question.model, "lora_rank", 0) or 0)
    compute = bytes_of(_format(options, question))
    return TrainingShape(
        model=model,
        shards=shards,
        weight_bytes=4 if question.optim is not None else compute,
        compute_bytes=compute,
        reduce_bytes=bytes_of(options.reduce_dtype),
        gathers=options.zero_stage == 3,
        scores_tokens=question.role in ("policy", "reference"),
        optimizer_numbers=optimizer_numbers(question.optim),
        is_fused=False,
        adapter_parameters=adapter_parameters(model, rank),
        update_tokens=question.update_tokens if question.optim is not None else 0,
        forward_tokens=question.forward_tokens,
        recomputes=bool(getattr(question.model, "enable_gradient_checkpointing", True)),
        compiled=False,
        accumulates=True,
        with_entropy=question.with_entropy,
    )


def _format(options: DeepSpeedConfig, question: TrainingMemoryQuestion) -> str:
    return options.dtype or ("bf16" if question.is_gpu else options.model_dtype)


def _part(size: int, workers: int) -> int:
    return -(-size // workers)
