"""Whole tensors from parameters that ZeRO 3 has cut, a bucket at a time; while it is copied, twice its size is held."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from rl_core.contracts.weights import WeightSpec, WeightStream
from rl_engine.base_engine import HFTrainingEngine
from rl_engine.engine_streams import EngineStreams
from rl_engine.token_model import TokenModel
from torch import Tensor


def is_cut(tensor: Tensor) -> bool:
    """Whether ZeRO 3 holds ``tensor``; its own shape is empty then, except while it is gathered."""
    return hasattr(tensor, "ds_tensor")


class ZeroStreams(EngineStreams):
    """Streams of a model whose parameters may be cut: each is shown by a stand-in of its whole shape, without memory."""

    def __init__(self, engine: HFTrainingEngine) -> None:
        """Those of ``engine``."""
        super().__init__(engine)
        self._shown: dict[int, Tensor] = {}
        self._parameters: dict[int, Tensor] = {}

    def clear(self) -> None:
        """See ``EngineStreams``."""
        super().clear()
        self._shown.clear()
        self._parameters.clear()

    def real(self, tensor: Tensor) -> Tensor:
        """The parameter behind a stand-in; any other tensor is itself."""
        return self._parameters.get(id(tensor), tensor)

    def _tensors(self, module: TokenModel, stream: WeightStream) -> Iterable[tuple[str, Tensor]]:
        for name, tensor in super()._tensors(module, stream):
            yield name, self.shown(tensor)

    def shown(self, tensor: Tensor) -> Tensor:
        """``tensor``, or its stand-in; the same one every time, so that tied tensors stay one."""
        if not is_cut(tensor):
            return tensor
        if id(tensor) not in self._shown:
            shape: torch.Size = tensor.ds_shape  # type: ignore[attr-defined]
            stand_in = torch.empty(shape, dtype=tensor.dtype, device="meta", requires_grad=tensor.requires_grad)
            self._shown[id(tensor)] = stand_in
            self._parameters[id(stand_in)] = tensor
        return self._shown[id(tensor)]


def gather(specs: Sequence[WeightSpec], tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Whole tensors on every rank, in the types that ``specs`` promise. Collective where one is cut.

    Args:
        specs: of the tensors.
        tensors: parameters and buffers.
        device: where they are wanted.
    """
    from deepspeed.runtime.zero import GatheredParameters  # noqa: PLC0415 - after open_deepspeed

    wanted = [getattr(torch, spec.dtype) for spec in specs]
    cut = list({id(tensor): tensor for tensor in tensors if is_cut(tensor)}.values())
    if not cut:
        return [tensor.detach().to(device, dtype) for tensor, dtype in zip(tensors, wanted, strict=True)]
    with GatheredParameters(cut):
        # What is gathered is gone with the block.
        return [
            tensor.detach().to(device, dtype, copy=is_cut(tensor))
            for tensor, dtype in zip(tensors, wanted, strict=True)
        ]
