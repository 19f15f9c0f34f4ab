"""What the engine holds on a device, predicted from its configuration; ``settings.cache_budget`` decides. Loads no torch."""

from __future__ import annotations

from rl_core.config.memory_question import MemoryEstimate, RolloutMemoryQuestion
from rl_engine.cache_model import cache_shape, estimate, share_of_device
from rl_engine.model_shape import read_shape

from rl_rollout_hf.config import CACHE_SHARE, DEFAULT_CPU_CACHE_GIB, HfRolloutConfig

_GIB = 1 << 30


def predict_memory(question: RolloutMemoryQuestion) -> MemoryEstimate:
    """See ``rl_core.config.memory_question``.

    Raises:
        ConfigError: the model's sizes are not known here.
    """
    own = HfRolloutConfig.below(question.rollout)
    dtype = own.dtype or question.rollout.dtype
    if own.dtype is None and dtype == "bfloat16" and not question.is_gpu:
        dtype = "float32"
    shape = cache_shape(question, read_shape(question.model), dtype=dtype)
    if own.cache_gib is not None:
        return estimate(shape, int(own.cache_gib * _GIB))
    if not question.is_gpu:
        return estimate(shape, int(DEFAULT_CPU_CACHE_GIB * _GIB))
    share = share_of_device(question)
    if share is None or question.device_bytes is None:
        return estimate(shape, None)
    free = question.device_bytes - question.beside_bytes - shape.weights
    return estimate(shape, min(share - shape.weights, int(free * CACHE_SHARE)))
