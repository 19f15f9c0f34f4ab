"""Adapters in a model: attached by PEFT, named as PEFT names them, switched off for the base model's answers."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
from rl_core.errors import ConfigError
from torch import Tensor, nn
from transformers import PreTrainedModel

from rl_engine.experts import linear_targets
from rl_engine.lora.files import adapter_config, load_into
from rl_engine.lora.settings import Layers, LoraSettings

if TYPE_CHECKING:
    from rl_engine.token_model import TokenModel

_log = logging.getLogger(__name__)

_NAME: Final = "default"
"""PEFT's name of a model's first adapter."""

PREFIX: Final = "base_model.model."
"""What stands before a layer's name in adapter files, and what generation engines expect there."""


class Adapter:
    """The adapters of one model."""

    def __init__(self, settings: LoraSettings, layers: Mapping[str, Any], whole: Mapping[str, nn.Module]) -> None:
        """See ``add_adapter``.

        Args:
            settings: they were made from.
            layers: PEFT's layers by their names in the Hugging Face checkpoint.
            whole: further modules that are trained as a whole, by such names.
        """
        self.settings = settings
        self._layers = dict(layers)
        self._whole = dict(whole)

    def __len__(self) -> int:
        """Adapted layers."""
        return len(self._layers)

    @property
    def layer_names(self) -> tuple[str, ...]:
        """Adapted layers by their names in the checkpoint."""
        return tuple(self._layers)

    @property
    def whole_names(self) -> tuple[str, ...]:
        """Modules that are trained as a whole."""
        return tuple(self._whole)

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Everything that is trained, under its name in an adapter file."""
        for name, layer in self._layers.items():
            a, b = self.matrices(layer)
            yield f"{PREFIX}{name}.lora_A.weight", a
            yield f"{PREFIX}{name}.lora_B.weight", b
        for name, module in self._whole.items():
            for part, tensor in module.named_parameters():
                yield f"{PREFIX}{name}.{part}", tensor

    def layer_of(self, weight_name: str) -> Any | None:
        """The adapted layer that a tensor of the checkpoint is the weight of."""
        return self._layers.get(weight_name.removesuffix(".weight")) if weight_name.endswith(".weight") else None

    @staticmethod
    def matrices(layer: Any) -> tuple[Tensor, Tensor]:
        """A [r, in] and B [out, r] of an adapted layer, as they are on this rank now."""
        return layer.lora_A[_NAME].weight, layer.lora_B[_NAME].weight

    @staticmethod
    def is_transposed(layer: Any) -> bool:
        """Whether a layer's weight is [in, out]."""
        return bool(layer.fan_in_fan_out)

    @property
    def has_transposed(self) -> bool:
        """Whether there is such a layer."""
        return any(map(self.is_transposed, self._layers.values()))

    @staticmethod
    def owns(name: str) -> bool:
        """Whether a parameter's name within the model is that of A or B."""
        return ".lora_A." in name or ".lora_B." in name

    @staticmethod
    def base_name(name: str) -> str:
        """A name within the model as it was before."""
        return name.replace(".base_layer.", ".")

    @contextmanager
    def off(self) -> Iterator[None]:
        """The model computes as the base model."""
        # PEFT's own switch also takes the gradient from the matrices that stand in the model now. Those are shards before a
        # pass and gathered ones within it, and FSDP2 does not carry that over from one to the other.
        for layer in self._layers.values():
            layer._disable_adapters = True
        try:
            yield
        finally:
            for layer in self._layers.values():
                layer._disable_adapters = False


def add_adapter(
    module: TokenModel, settings: LoraSettings, *, dtype: torch.dtype, seed: int, is_trained: bool = True
) -> Adapter:
    """Freeze ``module`` and put adapters on its linear layers, in place.

    The score head of a value model stays trained as a whole: it starts as zeros.

    Args:
        module: loaded, on the CPU, not sharded.
        settings: which.
        dtype: of what is trained.
        seed: of the matrices A; every rank must draw the same.
        is_trained: whether gradients will be taken.

    Raises:
        ConfigError: no layer is chosen, or one that cannot have an adapter; or ``start_from`` does not fit.
    """
    model, whole = _parts(module)
    targets = linear_targets(model, module.file_form, settings.target_modules)
    _inject(model, settings, targets, seed)
    layers = {module.checkpoint_name(name): layer for name, layer in module.named_modules() if _is_adapted(layer)}
    _require_plain_linear(module, layers, settings)
    module.requires_grad_(requires_grad=False)
    adapter = Adapter(settings, layers, whole)
    for part in (
        *(matrices for layer in layers.values() for matrices in (layer.lora_A, layer.lora_B)),
        *whole.values(),
    ):
        part.to(dtype).requires_grad_(is_trained)
    if settings.start_from is not None:
        load_into(dict(adapter.named_tensors()), settings)
    trained = sum(tensor.numel() for _, tensor in adapter.named_tensors())
    _log.info(
        "adapters of rank %d and alpha %g on %d layers: %d trained weights beside %d frozen ones",
        settings.rank, settings.alpha, len(layers), trained, sum(p.numel() for p in module.parameters()) - trained,
    )  # fmt: skip
    return adapter


def _parts(module: TokenModel) -> tuple[PreTrainedModel, dict[str, nn.Module]]:
    """The transformers model that gets the adapters, and what is trained as a whole beside it."""
    inner = getattr(module, "causal_lm", None)
    if inner is not None:
        return inner, {}
    return module.backbone, {name: part for name, part in module.named_children() if part is not module.backbone}


def _inject(model: PreTrainedModel, settings: LoraSettings, targets: Layers, seed: int) -> None:
    from peft import inject_adapter_in_model  # noqa: PLC0415 - runs without adapters need not load it

    config = adapter_config(settings, targets=targets)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            inject_adapter_in_model(config, model, _NAME)
    except ValueError as error:  # PEFT's word for a choice of layers that it cannot follow
        asked = f"model.target_modules={settings.target_modules!r}, model.exclude_modules={settings.exclude_modules!r}"
        msg = f"{type(model).__name__} gets no adapters from {asked}: {error}"
        raise ConfigError(msg) from error


def _is_adapted(layer: nn.Module) -> bool:
    from peft.tuners.tuners_utils import BaseTunerLayer  # noqa: PLC0415 - as above

    return isinstance(layer, BaseTunerLayer)


def _require_plain_linear(module: TokenModel, layers: Mapping[str, Any], settings: LoraSettings) -> None:
    """Refuse what could be trained, but neither merged nor scored."""
    from peft.tuners.lora.layer import Linear  # noqa: PLC0415 - as above

    ends = (
        getattr(module, "causal_lm", module.backbone).get_output_embeddings(),
        module.backbone.get_input_embeddings(),
    )
    for name, layer in layers.items():
        if type(layer) is not Linear or any(layer is end for end in ends):
            msg = (
                f"model.target_modules chooses {name}, a {type(layer.get_base_layer()).__name__}; embeddings, output layers "
                "and other layers than plain linear ones get no adapters. Leave it out, or add it to model.exclude_modules"
            )
            raise ConfigError(msg)
    if not layers:
        msg = f"model.target_modules={settings.target_modules!r} chooses no layer; 'all-linear' takes all of them"
        raise ConfigError(msg)
