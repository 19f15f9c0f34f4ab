"""Which attention a model computes packed sequences with: chosen once, by trial, and named in the log.

Candidates, the fastest first; the first one that this machine has and that comes to the model's own hidden states is taken::

    flash_attention_3, flash_attention_2     the library, where it is installed: GPU, half precision
    rl_varlen                                torch's own variable-length kernel: GPU, half precision
    rl_packed                                sequences of about one length at a time through torch's other kernels: anywhere
    sdpa                                     whole packs with a mask: correct, and its cost grows with the square of the pack

``model.override_config.attn_implementation`` decides instead of this list.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

import torch
from rl_core.algorithms.precision import widen
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.utils import is_flash_attn_2_available, is_flash_attn_3_available

from rl_engine import varlen_attention
from rl_engine.packed_attention import PACKED
from rl_engine.varlen_attention import VARLEN

_log = logging.getLogger(__name__)

REPLACES: Final = "sdpa"
NEEDS_LAYOUT: Final = frozenset({PACKED, VARLEN})
"""Implementations that are told where sequences end by ``packed_attention.packed_as``."""
_HALF: Final = (torch.bfloat16, torch.float16)
_CLOSE: Final = {torch.float64: 1e-9, torch.float32: 1e-4}
_CLOSE_HALF: Final = 0.05
"""Relative to the largest hidden state: kernels round differently, a wrong neighbour changes much more."""


def choose_attention(
    config: PreTrainedConfig, device: torch.device, dtype: torch.dtype, hidden_states: Callable[[], Tensor]
) -> str:
    """Set the attention of a model that would take torch's own with a mask; says which it is.

    Args:
        config: of the model; changed.
        device: where it computes.
        dtype: in which it computes.
        hidden_states: a pass over packed sequences without gradient, the same each time. Collective where the model is.
    """
    if config._attn_implementation != REPLACES:
        return str(config._attn_implementation)
    expected = widen(hidden_states())
    for name in _candidates(config, device, dtype):
        problem = _try(config, name, dtype, expected, hidden_states)
        if problem is None:
            _log.info("%s computes packed sequences with %s", config.model_type, name)
            return name
        _log.info("%s does not compute packed sequences with %s: %s", config.model_type, name, problem)
    _log.warning(
        "%s computes attention over whole packs with a mask, whose cost grows with the square of the tokens in a pass; "
        "a smaller token budget is faster",
        config.model_type,
    )
    return REPLACES


def _candidates(config: PreTrainedConfig, device: torch.device, dtype: torch.dtype) -> Iterator[str]:
    if device.type == "cuda" and dtype in _HALF:
        if is_flash_attn_3_available():
            yield "flash_attention_3"
        if is_flash_attn_2_available():
            yield "flash_attention_2"
    if varlen_attention.fits(config, device, dtype):
        yield VARLEN
    yield PACKED


def _try(
    config: PreTrainedConfig,
    name: str,
    dtype: torch.dtype,
    expected: Tensor,
    hidden_states: Callable[[], Tensor],
) -> str | None:
    """Set it; why it cannot stay, in which case it does not."""
    config._attn_implementation = name
    try:
        found = widen(hidden_states())
    except (AttributeError, TypeError, ValueError, RuntimeError, IndexError, ImportError) as error:
        config._attn_implementation = REPLACES
        return f"{type(error).__name__}: {error}"
    limit = _CLOSE.get(dtype, _CLOSE_HALF) * max(1.0, float(expected.abs().max()))
    gap = float((found - expected).abs().max())
    if gap <= limit:
        return None
    config._attn_implementation = REPLACES
    return f"it comes to other hidden states, by {gap:.3g}"
