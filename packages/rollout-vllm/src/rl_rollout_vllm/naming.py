"""Names of the checkpoint that vLLM's loaders know by other names, and names that a tensor of vLLM's is made of.

transformers 5 keeps the experts of a layer as one tensor, checkpoints and vLLM's loaders name each expert::

    mlp.experts.gate_up_proj [E, 2 I, H]  ->  mlp.experts.0.gate_proj.weight [I, H], mlp.experts.0.up_proj.weight, ...
    mlp.experts.down_proj    [E, H, I]    ->  mlp.experts.0.down_proj.weight [H, I], ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from torch import Tensor

_FUSED_AS_THEY_ARE: Final = frozenset({"gpt_oss", "llama4", "llama4_text"})
"""Model types that keep their experts the other way round, and whose loaders take them so."""

_PACKED: Final[Mapping[str, Sequence[str]]] = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}
_EXPERTS: Final[Mapping[str, Sequence[str]]] = {"w13_weight": ("gate_proj", "up_proj"), "w2_weight": ("down_proj",)}


def as_loaded(name: str, tensor: Tensor, model_type: str) -> Iterator[tuple[str, Tensor]]:
    """``tensor`` under the names that vLLM's loader takes, as views."""
    base, _, part = name.rpartition(".")
    if model_type in _FUSED_AS_THEY_ARE or not base.endswith(".experts") or tensor.dim() != 3:
        yield name, tensor
        return
    for expert, matrix in enumerate(tensor):
        if part == "gate_up_proj":
            gate, up = matrix.chunk(2)
            yield f"{base}.{expert}.gate_proj.weight", gate
            yield f"{base}.{expert}.up_proj.weight", up
        else:
            yield f"{base}.{expert}.{part}.weight", matrix


def wrapped_pieces(model: Any) -> frozenset[str]:
    """Last names of layers that hold their weight one level deeper (``base_layer``), as those that can have adapters do.

    vLLM 0.32 looks there by itself; the loaders of 0.25 want to be told.
    """
    packed = {**_PACKED, **getattr(model, "packed_modules_mapping", {})}
    found: set[str] = set()
    for name, module in model.named_modules():
        if "base_layer" in module._modules and not hasattr(type(module), "load_weights"):
            last = name.rpartition(".")[2]
            found |= {last, *packed.get(last, ())}
    return frozenset(found)


def as_wrapped(name: str, pieces: frozenset[str]) -> str:
    """``name`` with ``base_layer`` where its layer is one of ``pieces``."""
    layer, _, kind = name.rpartition(".")
    return f"{layer}.base_layer.{kind}" if layer.rpartition(".")[2] in pieces else name


def made_of(name: str, model: Any, num_experts: int) -> list[str]:
    """Names in the checkpoint that vLLM's tensor ``name`` is made of, as far as they can be told."""
    parts = name.replace(".base_layer.", ".").split(".")
    if parts[-1] in _EXPERTS and "experts" in parts:
        base = ".".join(parts[: parts.index("experts") + 1])
        return [f"{base}.{expert}.{part}.weight" for expert in range(num_experts) for part in _EXPERTS[parts[-1]]]
    packed = {**_PACKED, **getattr(model, "packed_modules_mapping", {})}
    for place, part in enumerate(parts):
        if part in packed:
            return [".".join([*parts[:place], piece, *parts[place + 1 :]]) for piece in packed[part]]
    return [name]
