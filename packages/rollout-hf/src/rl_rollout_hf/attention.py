"""Attention of a step: torch's own kernels, called so that they read the cache as it lies.

A step has one query a head, and fewer key-value heads than query heads in most models. Query heads that share a key-value
head become the queries of one attention problem, so keys and values are neither repeated nor copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

ROWS: Final = "rl_rows"
"""Name of the implementation in transformers."""
_UNCOMMON: Final = ("position_bias", "softcap", "s_aux")
# cuDNN's kernels are compiled anew for every shape, and hardly two steps have the same.
_BACKENDS: Final = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def row_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """See transformers' ``sdpa_attention_forward``, which does whatever is not a plain step.

    Args:
        module: the attention layer.
        query: [B, heads, L, dim].
        key: [B, key-value heads, columns, dim].
        value: [B, key-value heads, columns, dim].
        attention_mask: [B, 1, L, columns] bool, or None for a causal one.
        kwargs: ``scaling`` and what else the model passes.

    Returns:
        [B, L, heads, dim], and no weights.
    """
    batch, heads, length, dim = query.shape
    is_plain = all(kwargs.get(name) is None for name in _UNCOMMON)
    if length > 1 or heads == key.shape[1] or not is_plain:
        found: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
        return found
    grouped = query.reshape(batch, key.shape[1], heads // key.shape[1], dim)
    output = scaled_dot_product_attention(grouped, key, value, attn_mask=attention_mask, scale=kwargs.get("scaling"))
    return output.reshape(batch, 1, heads, value.shape[-1]), None


@contextmanager
def fitting_kernels(device: torch.device) -> Iterator[None]:
    """Choose among the kernels that suit shapes which always change."""
    if device.type != "cuda":
        yield
        return
    with sdpa_kernel(_BACKENDS):
        yield


AttentionInterface.register(ROWS, row_attention)
AttentionMaskInterface.register(ROWS, sdpa_mask)
