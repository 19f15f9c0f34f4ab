"""Weights and key-value cache of a generation engine, in closed form. Loads no torch.

::

    a token in the cache     2 x layers x key-value heads x head size x bytes, over the workers that slice it
    the cache                what the engine's share of the device leaves beside weights and working memory
    sequences at a time      cache tokens / longest sequence

A layer with a window keeps a window's tokens of a sequence; they count as a share of a token of ``sequence_tokens``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rl_core.config.memory_question import GENERATE, MemoryEstimate, RolloutMemoryQuestion

from rl_engine.model_shape import ModelShape, read_shape
from rl_engine.number_formats import bytes_of


@dataclass(frozen=True, kw_only=True)
class CacheShape:
    """How one worker of a replica serves a model.

    Attributes:
        model: the model.
        slices: workers that slice each layer.
        stages: workers that share the layers.
        weight_bytes: of a number of the weights.
        cache_bytes: of a number of the cache.
        batched_tokens: tokens of one engine step.
        sequence_tokens: longest sequence.
        sequences: sequences whose logits exist at a time.
    """

    model: ModelShape
    slices: int = 1
    stages: int = 1
    weight_bytes: int = 2
    cache_bytes: int = 2
    batched_tokens: int = 8192
    sequence_tokens: int = 4096
    sequences: int = 256

    @property
    def weights(self) -> int:
        """Bytes of this worker's weights."""
        return -(-self.model.parameters * self.weight_bytes // (self.slices * self.stages))

    @property
    def bytes_per_token(self) -> int:
        """Bytes of a token in this worker's part of the cache."""
        model = self.model
        share = 1.0
        if model.window is not None and model.window < self.sequence_tokens:
            share = 1 - model.windowed_layers / model.layers * (1 - model.window / self.sequence_tokens)
        # Heads that are fewer than the workers are held more than once.
        width = 2 * max(1, -(-model.kv_heads // self.slices)) * model.head_dim
        return max(1, round(width * model.layers / self.stages * share) * self.cache_bytes)

    @property
    def work(self) -> int:
        """Bytes that a step needs: one block's hidden states, and logits with their float32 copy."""
        model, tokens = self.model, min(self.batched_tokens, self.sequences * self.sequence_tokens)
        block = tokens * self.weight_bytes * (4 * model.hidden + 3 * model.inner // self.slices)
        logits = self.sequences * model.vocabulary * (self.weight_bytes + 2 * 4)
        return max(block, logits)


def cache_shape(question: RolloutMemoryQuestion, model: ModelShape, *, dtype: str) -> CacheShape:
    """The keys that all engines share, in the terms of this model; ``dtype`` is that of the weights."""
    rollout = question.rollout
    from_data = (rollout.prompt_length or 0) + (rollout.response_length or 0)
    return CacheShape(
        model=model,
        slices=rollout.tensor_model_parallel_size,
        stages=rollout.pipeline_model_parallel_size,
        weight_bytes=bytes_of(dtype),
        cache_bytes=bytes_of(dtype),
        batched_tokens=rollout.max_num_batched_tokens,
        sequence_tokens=rollout.max_model_len or from_data or model.positions or 1,
        sequences=rollout.max_num_seqs,
    )


def estimate(shape: CacheShape, cache_bytes: int | None) -> MemoryEstimate:
    """The answer for a cache of so many bytes; None where nobody knows."""
    if cache_bytes is None:
        return MemoryEstimate(states={"weights": shape.weights}, work={GENERATE: shape.work})
    room = max(0, cache_bytes)
    return MemoryEstimate(
        states={"weights": shape.weights, "kv_cache": room},
        work={GENERATE: shape.work},
        cache_tokens=room // shape.bytes_per_token,
    )


def share_of_device(question: RolloutMemoryQuestion) -> int | None:
    """Bytes that ``rollout.gpu_memory_utilization`` gives the engine; None where the device's size is not known."""
    if question.device_bytes is None:
        return None
    return int(question.rollout.gpu_memory_utilization * question.device_bytes)


def predict_paged(question: RolloutMemoryQuestion) -> MemoryEstimate:
    """A paged engine: its share of the device, less weights and working memory, is the cache.

    Raises:
        ConfigError: the model's sizes are not known here.
    """
    dtype = _dtype(question.rollout, is_gpu=question.is_gpu)
    shape = cache_shape(question, read_shape(question.model), dtype=dtype)
    share = share_of_device(question)
    return estimate(shape, None if share is None else share - shape.weights - shape.work)


def _dtype(rollout: Any, *, is_gpu: bool) -> str:
    named = str(rollout.dtype)
    if named == "auto" or (named == "bfloat16" and not is_gpu):
        return "bfloat16" if is_gpu else "float32"
    return named
