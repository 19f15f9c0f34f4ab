"""A step of the common decoder in few operations, for machines on which calling an operation costs more than computing it.

One token a row is little work: on a CPU the layers of transformers spend most of a step on the way to their kernels. Models of
one plan (``_CLASSES``) are therefore stepped here, with the projections of a layer joined::

    embed ─▶ ( norm ─▶ query, key, value: one product ─▶ rotate ─▶ cache, attention ─▶ output, add
               norm ─▶ gate, up: one product          ─▶ activate, multiply         ─▶ down,   add ) x layers ─▶ norm ─▶ logits

The model keeps its parameters; they become views of the joined ones, so whoever fills them fills both. Prompts are read by the
model itself, and the engine compares the two on the weights it gets (``Runner.require_faithful_cache``) before it relies on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from rl_rollout_hf.cache import RowCache

_CLASSES: Final = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
_DTYPE: Final = torch.float32
"""In others the layers of transformers convert back and forth, which joined operations would have to follow."""


@dataclass(frozen=True, eq=False, slots=True)
class _Linear:
    weight: Tensor
    bias: Tensor | None

    def __call__(self, states: Tensor) -> Tensor:
        return functional.linear(states, self.weight, self.bias)


@dataclass(frozen=True, eq=False, slots=True)
class _Norm:
    weight: Tensor
    eps: float

    def __call__(self, states: Tensor) -> Tensor:
        return functional.rms_norm(states, self.weight.shape, self.weight, self.eps)


@dataclass(frozen=True, eq=False, slots=True)
class _Layer:
    """One layer.

    Attributes:
        norms: before attention, before the feed-forward part.
        head_norms: of query and key heads, in models that have them.
        query_key_value: the joined projection.
        output: of attention.
        gate_up: the joined projection.
        down: of the feed-forward part.
        activation: of the gate.
        scaling: of the attention scores.
    """

    norms: tuple[_Norm, _Norm]
    head_norms: tuple[_Norm, _Norm] | None
    query_key_value: _Linear
    output: _Linear
    gate_up: _Linear
    down: _Linear
    activation: Any
    scaling: float


class FusedStep:
    """A model as a step computes it."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Join the projections of ``model``; its weights need no values yet."""
        base: Any = model.base_model
        self._embedding = base.embed_tokens
        self._rotary = base.rotary_emb
        self._layers = [_join(layer) for layer in base.layers]
        self._norm = _norm(base.norm)
        self._head = _plain(model.get_output_embeddings())
        first: Any = base.layers[0].self_attn
        self._head_dim: int = first.head_dim
        self._cos, self._sin = torch.empty(0), torch.empty(0)

    @classmethod
    def of(cls, model: PreTrainedModel) -> FusedStep | None:
        """The step of a model on the CPU whose plan is known, otherwise None."""
        weight = model.get_input_embeddings().weight
        is_known = type(model).__name__ in _CLASSES and type(model).__module__.startswith("transformers.")
        if not is_known or weight.device.type != "cpu" or weight.dtype != _DTYPE:
            return None
        return cls(model)

    def __call__(self, cache: RowCache, tokens: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        """Logits of what follows each row.

        Args:
            cache: of the rows; takes the tokens in.
            tokens: [B] int64.
            positions: [B] int64.
            mask: [B, 1, 1, length] bool, what a row sees.
        """
        batch, length = len(tokens), mask.shape[-1]
        states = functional.embedding(tokens, self._embedding.weight)
        cos, sin = self._rotation(positions, cache.length)
        columns = positions[:, None, None, None]
        for layer, all_keys, all_values in zip(self._layers, cache.keys, cache.values, strict=True):
            keys, values = all_keys[:batch], all_values[:batch]
            groups, dim = keys.shape[1], self._head_dim
            joined = layer.query_key_value(layer.norms[0](states)).view(batch, -1, dim)
            heads = joined.shape[1] - 2 * groups
            rotated = joined[:, : heads + groups]
            if layer.head_norms is not None:
                query_norm, key_norm = layer.head_norms
                rotated = torch.cat([query_norm(rotated[:, :heads]), key_norm(rotated[:, heads:])], dim=1)
            rotated = torch.addcmul(rotated * cos, rotated.roll(dim // 2, -1), sin)
            places = columns.expand(batch, groups, 1, dim)
            keys.scatter_(2, places, rotated[:, heads:, None])
            values.scatter_(2, places, joined[:, heads + groups :, None])
            seen = functional.scaled_dot_product_attention(
                rotated[:, :heads].view(batch, groups, heads // groups, dim),
                keys[:, :, :length],
                values[:, :, :length],
                attn_mask=mask,
                scale=layer.scaling,
            )
            states = states + layer.output(seen.reshape(batch, heads * dim))
            gate, up = layer.gate_up(layer.norms[1](states)).chunk(2, dim=-1)
            states = states + layer.down(layer.activation(gate) * up)
        return self._head(self._norm(states))

    def _rotation(self, positions: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """[B, 1, dim] cosine, and sine with the sign of its half; all positions below ``length`` are computed once."""
        if length > len(self._cos):
            every = torch.arange(length, device=positions.device)[None]
            cos, sin = self._rotary(self._embedding.weight[:1], every)
            half = self._head_dim // 2
            self._cos, self._sin = cos[0], torch.cat([-sin[0, :, :half], sin[0, :, half:]], dim=-1)
        return self._cos[positions, None], self._sin[positions, None]


def _join(layer: Any) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    has_head_norms = hasattr(attention, "q_norm")
    return _Layer(
        norms=(_norm(layer.input_layernorm), _norm(layer.post_attention_layernorm)),
        head_norms=(_norm(attention.q_norm), _norm(attention.k_norm)) if has_head_norms else None,
        query_key_value=_joined([attention.q_proj, attention.k_proj, attention.v_proj]),
        output=_plain(attention.o_proj),
        gate_up=_joined([mlp.gate_proj, mlp.up_proj]),
        down=_plain(mlp.down_proj),
        activation=mlp.act_fn,
        scaling=attention.scaling,
    )


def _joined(layers: Sequence[nn.Linear]) -> _Linear:
    """One projection whose rows are those of ``layers``, which become views of it."""
    sizes = [layer.out_features for layer in layers]
    weight = torch.cat([layer.weight.detach() for layer in layers])
    biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
    bias = torch.cat(biases) if biases else None
    for layer, part in zip(layers, weight.split(sizes), strict=True):
        layer.weight.data = part
    if bias is not None:
        for layer, part in zip(layers, bias.split(sizes), strict=True):
            layer.bias.data = part
    return _Linear(weight, bias)


def _plain(layer: Any) -> _Linear:
    return _Linear(layer.weight, layer.bias)


def _norm(layer: Any) -> _Norm:
    return _Norm(layer.weight, layer.variance_epsilon)
