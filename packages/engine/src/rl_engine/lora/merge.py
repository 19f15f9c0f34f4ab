"""Base weights with their adapters added, without changing either."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from rl_core.algorithms.precision import widen
from rl_core.contracts.weights import WeightSpec
from torch import Tensor

if TYPE_CHECKING:
    from rl_engine.lora.adapter import Adapter

Gather = Callable[[Sequence[WeightSpec], Sequence[Tensor]], list[Tensor]]
"""Specs and tensors -> whole tensors in the promised type. Collective."""


def merged_weight(weight: Tensor, a: Tensor, b: Tensor, scaling: float, *, transposed: bool = False) -> Tensor:
    """W + scaling B A, added up in at least float32.

    Args:
        weight: [out, in], or [in, out] when ``transposed``.
        a: [r, in].
        b: [out, r].
        scaling: alpha / r.
        transposed: whether the layer keeps its weight the other way round.

    Returns:
        A new tensor in the type of ``weight``.

    Source: Hu et al. 2021, arXiv:2106.09685, eq. 3.
    """
    product = widen(b) @ widen(a)
    return torch.add(widen(weight), product.T if transposed else product, alpha=scaling).to(weight.dtype)


def gather_merged(
    gather: Gather, adapter: Adapter, specs: Sequence[WeightSpec], tensors: Mapping[str, Tensor]
) -> list[Tensor]:
    """Whole base tensors, those with an adapter merged. Collective.

    Args:
        gather: the engine's.
        adapter: whose matrices are added.
        specs: of base tensors.
        tensors: name -> base tensor or shard.
    """
    layers = [adapter.layer_of(spec.name) for spec in specs]
    matrices = [matrix for layer in layers if layer is not None for matrix in adapter.matrices(layer)]
    matrix_specs = [
        WeightSpec(name="", shape=tuple(matrix.shape), dtype=str(matrix.dtype).removeprefix("torch."))
        for matrix in matrices
    ]
    # In one exchange: what a gather returns is valid until the next one.
    whole = gather([*specs, *matrix_specs], [*(tensors[spec.name] for spec in specs), *matrices])
    rest = iter(whole[len(specs) :])
    return [
        weight
        if layer is None
        else merged_weight(
            weight, next(rest), next(rest), adapter.settings.scaling, transposed=adapter.is_transposed(layer)
        )
        for weight, layer in zip(whole, layers, strict=False)
    ]
