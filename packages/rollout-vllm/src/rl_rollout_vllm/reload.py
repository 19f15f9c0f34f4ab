"""vLLM's layerwise reload, one bucket at a time: the only module of the weight side that calls vLLM.

A model's tensors may be repacked for the kernels (on a CPU nearly all are), so values cannot be copied into them. vLLM's way:
``begin`` puts each layer back to its checkpoint's shapes, without memory; ``load`` collects what comes for a layer and, when a
layer is whole, loads, repacks and copies it to where it lay; ``finish`` does the same for layers with padding. ``put_back``
is ours: it gives all layers their tensors again, whatever has come.

vLLM 0.25 and 0.32 do it alike; names with an underscore are its own internals, and there in both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def engine_settings(vllm_config: Any) -> Iterator[None]:
    """Layers look their settings up while they load."""
    from vllm.config import set_current_vllm_config  # noqa: PLC0415 - loading vLLM takes seconds

    with set_current_vllm_config(vllm_config):
        yield


def begin(model: nn.Module) -> None:
    """Make ``model`` ready for a whole set of weights."""
    from vllm.model_executor.model_loader import reload  # noqa: PLC0415 - see above

    _repack_experts(model)
    reload.initialize_layerwise_reload(model)


def _repack_experts(model: nn.Module) -> None:
    """On a CPU, vLLM 0.32 packs experts for its kernel when they are first loaded, and leaves later ones as they come."""
    for layer in model.modules():
        method: Any = getattr(layer, "quant_method", None)
        is_plain = (
            type(method).__name__ == "UnquantizedFusedMoEMethod" and getattr(method, "moe_kernel", None) is not None
        )
        if not is_plain or hasattr(method, "rl_repacks") or any(part.is_cuda for part in layer.parameters()):
            continue
        method.process_weights_after_loading = _repacking(method, method.process_weights_after_loading)
        method.rl_repacks = True


def _repacking(method: Any, process: Callable[[nn.Module], None]) -> Callable[[nn.Module], None]:
    def process_and_pack(layer: nn.Module) -> None:
        process(layer)
        method.moe_kernel.fused_experts.process_weights_after_loading(layer)

    return process_and_pack


def load(model: Any, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Give the model's loader some of the set, by names in the checkpoint."""
    model.load_weights(iter(weights))


def finish(model: nn.Module, model_config: Any) -> None:
    """The set is whole."""
    from vllm.model_executor.model_loader import reload  # noqa: PLC0415 - see above

    reload.finalize_layerwise_reload(model, model_config)


def put_back(model: Any) -> None:
    """Every layer has the tensors again that it had before ``begin``; values of layers that came whole are the new ones."""
    from vllm.model_executor.model_loader.reload import layerwise  # noqa: PLC0415 - see above

    if hasattr(model, "_original_do_torchao_reload"):
        model._do_torchao_reload = model._original_do_torchao_reload
    for layer in model.modules():
        info = layerwise.get_layerwise_info(layer)
        if info.can_load() and info.kernel_tensors is not None:
            layerwise._place_kernel_tensors(layer, info)
        info.reset()
    layerwise.LOADING_LAYERS.clear()


def own_waiting(model: nn.Module, storages: Collection[int]) -> None:
    """Copy what layers that are not whole yet still hold of ``storages`` (data pointers), which will be overwritten."""
    from vllm.model_executor.model_loader.reload import layerwise  # noqa: PLC0415 - see above

    for layer in model.modules():
        for _, call in layerwise.get_layerwise_info(layer).loaded_weights:
            for name, value in call.arguments.items():
                call.arguments[name] = _owned(value, storages)


def _owned(value: Any, storages: Collection[int]) -> Any:
    if isinstance(value, Tensor):
        return value.clone() if not value.is_meta and value.untyped_storage().data_ptr() in storages else value
    if isinstance(value, (tuple, list)):
        return type(value)(_owned(one, storages) for one in value)
    if isinstance(value, dict):
        return {key: _owned(one, storages) for key, one in value.items()}
    return value


@contextmanager
def without_values(model: nn.Module) -> Iterator[None]:
    """Inside, ``model`` takes tensors without values: its loaders run and check shapes, and nothing is copied or changed."""
    from vllm.model_executor.model_loader.reload import layerwise, meta  # noqa: PLC0415 - see above

    begin(model)
    try:
        for layer in model.modules():
            stores: tuple[Any, Any] = (layer._parameters, layer._buffers)
            for tensors in stores:
                for name, tensor in tensors.items():
                    if tensor is None:
                        continue
                    bare = tensor if tensor.is_meta else meta.to_meta_tensor(tensor)
                    if hasattr(bare, "weight_loader"):
                        bare.weight_loader = layerwise._get_original_loader(bare)
                    tensors[name] = bare
        yield
    finally:
        put_back(model)


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by vLLM's names, shared ones under each of them."""
    found: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
    return found | dict(model.named_buffers(remove_duplicate=False))


def is_resident(tensor: Tensor) -> bool:
    """Whether a tensor of the model has values that could be read; repacked ones have none."""
    return tensor.numel() > 0 and tensor.layout is torch.strided
