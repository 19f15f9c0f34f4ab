"""The model of a role, ready to be sharded."""

from __future__ import annotations

import logging
from typing import Any

import torch
from rl_core.contracts.engine import EngineRole

from rl_engine.checkpoint_files import require_same_names
from rl_engine.models import load_causal_lm, load_config, resolve_folder
from rl_engine.self_check import require_separable_type
from rl_engine.token_model import PolicyModel, TokenModel
from rl_engine.value_head import SCORE_BIAS, SCORE_WEIGHT, load_value_model

_log = logging.getLogger(__name__)


def load_token_model(
    role: EngineRole, section: Any, dtype: torch.dtype, *, temperature: float, is_trained: bool
) -> TokenModel:
    """Load what ``role`` needs on the CPU.

    Args:
        role: policy and reference score tokens, value and reward models judge.
        section: the ``model`` section.
        dtype: of the weights in memory.
        temperature: divides the logits.
        is_trained: whether gradients will be taken.

    Raises:
        ConfigError: the model cannot be loaded, or cannot be used in this way; says why.
    """
    folder = resolve_folder(section.path)
    config = load_config(section, folder)
    if getattr(section, "use_remove_padding", True) is not False:
        require_separable_type(config)
    module: TokenModel
    if role in (EngineRole.VALUE, EngineRole.REWARD):
        module = load_value_model(section, dtype, require_head=role is EngineRole.REWARD and not is_trained)
    else:
        module = PolicyModel(load_causal_lm(section, dtype, config), temperature=temperature)
    _check_names(module, folder)
    module.requires_grad_(is_trained)
    if is_trained and getattr(section, "enable_gradient_checkpointing", False):
        _checkpoint_activations(module)
    return module


def _check_names(module: TokenModel, folder: Any) -> None:
    seen: set[int] = set()
    names = []
    for name, tensor in module.named_weights():
        if id(tensor) not in seen and name not in (SCORE_WEIGHT, SCORE_BIAS):
            names.append(name)
        seen.add(id(tensor))
    backbone = module.backbone
    require_same_names(folder, names, backbone.base_model_prefix, module.hf_config.model_type)


def _checkpoint_activations(module: TokenModel) -> None:
    backbone = module.backbone
    if not backbone.supports_gradient_checkpointing:
        _log.warning(
            "%s cannot recompute activations; enable_gradient_checkpointing has no effect", type(backbone).__name__
        )
        return
    settings = {"use_reentrant": False}
    # The method's name changed within the supported range of transformers.
    if hasattr(backbone, "activation_checkpointing_enable"):
        backbone.activation_checkpointing_enable(activation_checkpointing_kwargs=settings)
    else:
        backbone.gradient_checkpointing_enable(gradient_checkpointing_kwargs=settings)
