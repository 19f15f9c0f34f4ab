"""Attention over packed sequences by torch's own variable-length flash kernel, on GPUs in half precision.

The kernel is told where each sequence ends, so no mask exists and no work is done between sequences. The layout of the pack
(``packed_attention.Layout``) travels through the model in the place of the mask.
"""

from __future__ import annotations

import importlib
import inspect
from importlib.util import find_spec
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from rl_engine.packed_attention import Layout, current_layout, refuse_unsupported

VARLEN: Final = "rl_varlen"
"""Name of the implementation in transformers."""

_MODULE: Final = "torch.nn.attention.varlen"


def _kernel() -> tuple[Any, bool] | None:
    """Torch's function, and whether it has the argument ``enable_gqa``; None in a torch that has no such function."""
    if find_spec(_MODULE) is None:
        return None
    function = importlib.import_module(_MODULE).varlen_attn
    return function, "enable_gqa" in inspect.signature(function).parameters


# Looked up here because an import inside of a compiled block would cut it in two.
_KERNEL: Any = _kernel()


def fits(config: PreTrainedConfig, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether there is a kernel for this device and type, and the model's layers see windows of tokens, not chunks."""
    is_half = dtype in (torch.bfloat16, torch.float16)
    has_chunks = bool(getattr(config.get_text_config(), "attention_chunk_size", None))
    return device.type == "cuda" and is_half and not has_chunks and _KERNEL is not None


def varlen_mask(*args: Any, local_size: int | None = None, **kwargs: Any) -> Any:
    """The layout of the pack in place of a mask; with a window, the layer itself tells the kernel how long it is."""
    layout = current_layout()
    if layout is None:
        return sdpa_mask(*args, local_size=local_size, **kwargs)
    return layout


def varlen_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Layout | Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """See ``packed_attention.packed_attention``, whose arguments and results these are.

    Args:
        module: the attention layer.
        query: [1, heads, total, dim], half precision.
        key: [1, key-value heads, total, dim].
        value: [1, key-value heads, total, dim].
        attention_mask: the layout, or what ``sdpa_mask`` made.
        dropout: share of the weights that are dropped; the kernel drops none.
        scaling: of the scores; None is one over the root of ``dim``.
        sliding_window: tokens that a token sees, itself among them; None sees all before it.
        kwargs: what else the model passes.

    Raises:
        ValueError: the model wants of its attention what is not done here.
    """
    if not isinstance(attention_mask, Layout):
        found: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
        return found
    refuse_unsupported(kwargs | {"dropout": dropout})
    states = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    offsets, longest = attention_mask.offsets, attention_mask.longest
    left = -1 if sliding_window is None else sliding_window - 1
    kernel, tells_groups = _KERNEL
    # Later versions of torch want to be told of key-value heads that several heads share.
    options = {"enable_gqa": True} if tells_groups and query.shape[1] != key.shape[1] else {}
    out = kernel(*states, offsets, offsets, longest, longest, scale=scaling, window_size=(left, 0), **options)
    return out[None], None


AttentionInterface.register(VARLEN, varlen_attention)
AttentionMaskInterface.register(VARLEN, varlen_mask)
