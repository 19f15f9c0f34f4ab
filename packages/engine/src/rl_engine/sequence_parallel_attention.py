"""Attention of a pack that is cut over ranks: any implementation, on all tokens and some of the heads.

What the mask function returns travels through the model in the place of the mask (``WholePack``), so it also reaches layers
that are computed again in the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from rl_core.algorithms.precision import widen
from rl_core.errors import ConfigError
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rl_engine.sequence_parallel import SequenceParallel, current_share

_PREFIX: Final = "rl_ulysses_"
_LAYERS: Final = frozenset({"full_attention", "sliding_attention"})
"""Types of layers whose attention depends on positions, sequences and a window alone."""
_OF_HEADS: Final = ("position_bias", "s_aux", "output_attentions")
"""Arguments that hold something for every head."""
_CLOSE: Final = {torch.float64: 1e-9, torch.float32: 1e-4}
_CLOSE_HALF: Final = 0.05


@dataclass(frozen=True, eq=False, slots=True)
class WholePack:
    """What attention needs of a pack that is cut.

    Attributes:
        mask: of the whole pack, as the implementation wants it.
        positions: [1, total] int64, position ids of the whole pack.
        parallel: the ranks that share it.
    """

    mask: Any
    positions: Tensor
    parallel: SequenceParallel


class _FewerGroups:
    """An attention layer whose key-value heads were repeated; everything else is the layer's own."""

    def __init__(self, layer: nn.Module, groups: int) -> None:
        self._layer = layer
        self.num_key_value_groups = groups

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


def implementation_within(name: str) -> str:
    """The implementation that computes what ``name`` distributes; itself if it distributes nothing."""
    return name.removeprefix(_PREFIX)


def use_sequence_parallel(
    config: PreTrainedConfig, parallel: SequenceParallel, hidden_states: Callable[[], Tensor], expected: Tensor
) -> None:
    """Distribute the attention that a model has, if the model then comes to the same.

    Args:
        config: of the model; changed.
        parallel: the ranks that share each pack.
        hidden_states: a pass over packed sequences with every rank's share, joined; without gradient. Collective.
        expected: what the model comes to on one rank.

    Raises:
        ConfigError: the model cannot be cut in this way; says why.
    """
    inner = str(config._attn_implementation)
    reason = _unfit(config, inner, parallel.size)
    if reason is None:
        name = _registered(inner)
        config._attn_implementation = name
        reason = _difference(hidden_states, expected)
    if reason is not None:
        msg = (
            f"ulysses_sequence_parallel_size is {parallel.size}, but model type {config.model_type!r} cannot share a "
            f"sequence between workers: {reason}. Set it to 1, or to another divisor of the number of attention heads"
        )
        raise ConfigError(msg)


def _unfit(config: PreTrainedConfig, implementation: str, size: int) -> str | None:
    """What the configuration alone says against it."""
    text = config.get_text_config()
    other = sorted(set(getattr(text, "layer_types", None) or ()) - _LAYERS)
    if other:
        return f"it has layers of the type {', '.join(other)}, which need more than the attention heads to be exchanged"
    if getattr(text, "attention_chunk_size", None) and not getattr(text, "layer_types", None):
        return "its layers attend within chunks of a fixed size"
    heads = getattr(text, "num_attention_heads", None)
    if isinstance(heads, int) and heads % size:
        return f"its {heads} attention heads cannot be divided by {size}"
    if implementation not in ALL_ATTENTION_FUNCTIONS:
        return f"its attention implementation is {implementation!r}, which cannot be called from outside the model"
    return None


def _difference(hidden_states: Callable[[], Tensor], expected: Tensor) -> str | None:
    try:
        found = hidden_states()
    except (AttributeError, TypeError, ValueError, RuntimeError, IndexError) as error:
        return f"{type(error).__name__}: {error}"
    limit = _CLOSE.get(expected.dtype, _CLOSE_HALF) * max(1.0, float(widen(expected).abs().max()))
    gap = float((widen(found) - widen(expected)).abs().max())
    return None if gap <= limit else f"its hidden states change by {gap:.3g}"


def _registered(inner: str) -> str:
    name = _PREFIX + inner
    # A compiled block stops before the exchange and goes on after it.
    AttentionInterface.register(name, torch.compiler.disable(partial(distributed_attention, inner)))
    AttentionMaskInterface.register(name, partial(whole_mask, inner))
    return name


def whole_mask(inner: str, *args: Any, local_size: int | None = None, **kwargs: Any) -> WholePack | Any:
    """The mask of the whole pack for ``inner``; outside of a shared pass, what ``inner`` makes.

    Raises:
        ValueError: the model adds something of its own to the mask, which only knows this rank's tokens.
    """
    build: Callable[..., Any] = ALL_MASK_ATTENTION_FUNCTIONS.get(inner, _no_mask)
    current = current_share()
    if current is None:
        return build(*args, local_size=local_size, **kwargs)
    if kwargs.get("use_vmap"):
        msg = "the model adds a rule of its own to the attention mask"
        raise ValueError(msg)
    parallel, share = current
    total = share.positions.shape[1]
    sequence = (share.positions[0] == 0).cumsum(0)

    def sees(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        near = key <= query
        if local_size is not None:
            near = near & (key > query - local_size)
        return near & (sequence[query] == sequence[key])

    whole = {
        "batch_size": 1,
        "q_length": total,
        "kv_length": total,
        "mask_function": sees,
        "allow_is_causal_skip": False,
    }
    return WholePack(build(*args, local_size=local_size, **(kwargs | whole)), share.positions, parallel)


def _no_mask(*args: Any, **kwargs: Any) -> None:
    """For implementations that want none."""


def distributed_attention(
    inner: str,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: WholePack | Any,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention of own tokens, computed on all tokens and own heads. Collective over the ranks that share the pack.

    Args:
        inner: the implementation that computes.
        module: the attention layer.
        query: [1, heads, n, dim].
        key: [1, key-value heads, n, dim]; repeated where they cannot be shared out evenly.
        value: [1, key-value heads, n, dim].
        attention_mask: what ``whole_mask`` made.
        kwargs: what else the model passes.

    Returns:
        [1, n, heads, dim], and no weights.

    Raises:
        ValueError: the heads cannot be shared out, or an argument holds something for every head.
    """
    attend: Any = ALL_ATTENTION_FUNCTIONS[inner]
    if not isinstance(attention_mask, WholePack):
        outside: tuple[Tensor, Tensor | None] = attend(module, query, key, value, attention_mask, **kwargs)
        return outside
    parallel = attention_mask.parallel
    unsupported = [name for name in _OF_HEADS if kwargs.get(name) is not None and kwargs[name] is not False]
    if unsupported or query.shape[1] % parallel.size:
        reason = f"{', '.join(unsupported)} for every head" if unsupported else f"{query.shape[1]} heads"
        msg = f"attention over {parallel.size} ranks cannot share out {reason}"
        raise ValueError(msg)
    copies = math.lcm(key.shape[1], parallel.size) // key.shape[1]
    if copies > 1:
        key, value = key.repeat_interleave(copies, dim=1), value.repeat_interleave(copies, dim=1)
    query, key, value = parallel.scatter_heads((query, key, value))
    layer: Any = module if copies == 1 else _FewerGroups(module, query.shape[1] // key.shape[1])
    if "position_ids" in kwargs:
        kwargs["position_ids"] = attention_mask.positions
    own, _ = attend(layer, query, key, value, attention_mask.mask, **kwargs)
    return parallel.gather_heads(own), None
