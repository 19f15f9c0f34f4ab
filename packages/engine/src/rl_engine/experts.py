"""What this engine does and does not do for a mixture of experts, said where it would otherwise pass without a word."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rl_core.errors import ConfigError
from torch import nn

from rl_engine.lora.settings import ALL_LINEAR, Layers

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

    from rl_engine.file_form import FileForm

_log = logging.getLogger(__name__)

_COEFFICIENT = "router_aux_loss_coef"
_SWITCH = "output_router_logits"


def say_router_loss(config: PreTrainedConfig, overrides: Mapping[str, Any]) -> None:
    """Say that the loss that balances experts is not part of a run's loss.

    Args:
        config: of the model.
        overrides: ``model.override_config``.

    Raises:
        ConfigError: it was asked for.
    """
    coefficient = getattr(config.get_text_config(), _COEFFICIENT, None)
    if not coefficient:
        return
    asked = [name for name in (_COEFFICIENT, _SWITCH) if overrides.get(name)]
    if asked:
        msg = (
            f"model.override_config.{asked[0]} asks for the loss that balances the experts of a {config.model_type!r} model. "
            "The losses of this engine do not have that term. Leave the key out"
        )
        raise ConfigError(msg)
    _log.warning(
        "%s: %s=%g has no effect; the loss is that of the algorithm alone, and the router is trained by it like every other "
        "weight",
        config.model_type, _COEFFICIENT, coefficient,
    )  # fmt: skip


def linear_targets(model: PreTrainedModel, form: FileForm, targets: Layers) -> Layers:
    """``targets`` for a model with experts: the linear layers that they choose, by their whole names.

    PEFT would put adapters of another form on experts for ``all-linear`` and for the names that they have in files; those
    could be neither merged nor served.

    Args:
        model: that will get the adapters.
        form: of its tensors in files, which tells the experts.
        targets: ``model.target_modules``.

    Raises:
        ConfigError: a name is that of experts only.
    """
    if not form.cut:
        return targets
    linear = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    _log.warning(
        "the experts (%d tensors, such as %s) get no adapters and stay as they are", len(form.cut), form.cut[0]
    )
    if targets == ALL_LINEAR:
        return tuple(name for name in linear if model.get_submodule(name) is not model.get_output_embeddings())
    if isinstance(targets, str):
        return tuple(name for name, _ in model.named_modules() if re.fullmatch(targets, name))
    chosen: list[str] = []
    for target in targets:
        layers = _ending(linear, target)
        experts = _ending(expert_names(form), target)
        if experts and not layers:
            msg = (
                f"model.target_modules names {target!r}, which is only in experts ({experts[0]}). They are one tensor a layer "
                "in memory and get no adapters. Leave it out, or train all weights (model.lora_rank=0)"
            )
            raise ConfigError(msg)
        chosen += layers or [target]  # what is in neither is PEFT's to refuse
    return tuple(chosen)


def expert_names(form: FileForm) -> list[str]:
    """Names of layers that exist in files only, and of the tensors that they are in memory."""
    saved = [part.removesuffix(".weight") for name in form.cut for part in form.of(name).names]
    return [*form.cut, *saved]


def _ending(names: Iterable[str], target: str) -> list[str]:
    return [name for name in names if name == target or name.endswith(f".{target}")]
