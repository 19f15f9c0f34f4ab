"""The model of a role, ready to be sharded."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
from rl_core.contracts.engine import EngineRole
from transformers import PreTrainedConfig

from rl_engine.checkpoint_files import require_same_names
from rl_engine.experts import say_router_loss
from rl_engine.file_form import find_file_form
from rl_engine.lora.adapter import add_adapter
from rl_engine.lora.settings import lora_settings
from rl_engine.models import load_causal_lm, load_config, load_tokenizer, resolve_folder
from rl_engine.self_check import require_separable_type
from rl_engine.token_model import PolicyModel, TokenModel
from rl_engine.value_head import SCORE_BIAS, SCORE_WEIGHT, ValueModel, load_value_model

_log = logging.getLogger(__name__)


def load_token_model(
    role: EngineRole,
    section: Any,
    dtype: torch.dtype,
    *,
    temperature: float,
    is_trained: bool,
    frozen_dtype: torch.dtype | None = None,
    seed: int = 1,
) -> TokenModel:
    """Load what ``role`` needs on the CPU.

    Args:
        role: policy and reference score tokens, value and reward models judge.
        section: the ``model`` section.
        dtype: of the weights in memory that are trained, or of all.
        temperature: divides the logits.
        is_trained: whether gradients will be taken.
        frozen_dtype: of the base model's weights beside adapters; None takes ``dtype``.
        seed: of fresh adapters.

    Raises:
        ConfigError: the model cannot be loaded, or cannot be used in this way; says why.
    """
    folder = resolve_folder(section.path)
    config = load_config(section, folder)
    if getattr(section, "use_remove_padding", True) is not False:
        require_separable_type(config)
    if is_trained:
        say_router_loss(config, getattr(section, "override_config", None) or {})
    # A reference is the base model, whatever is trained on it.
    settings = None if role is EngineRole.REFERENCE else lora_settings(section)
    base_dtype = dtype if settings is None or frozen_dtype is None else frozen_dtype
    module: PolicyModel | ValueModel
    if role in (EngineRole.VALUE, EngineRole.REWARD):
        module = load_value_model(section, base_dtype, require_head=role is EngineRole.REWARD and not is_trained)
        if role is EngineRole.REWARD:
            module.pad_token_id = _pad_token_id(section, config, is_trained=is_trained)
    else:
        module = PolicyModel(load_causal_lm(section, base_dtype, config), temperature=temperature)
    _find_file_form(module, folder)
    module.requires_grad_(is_trained)
    if settings is not None:
        module.adapter = add_adapter(module, settings, dtype=dtype, seed=seed, is_trained=is_trained)
    if is_trained and getattr(section, "enable_gradient_checkpointing", False):
        _checkpoint_activations(module)
    return module


def _pad_token_id(section: Any, config: PreTrainedConfig, *, is_trained: bool) -> int | None:
    """The padding token of a reward model: its configuration's.

    One that is trained from a model that names none takes that of its tokenizer, where it has one, and is exported with it:
    transformers needs one to score several texts at a time.
    """
    stated: int | None = config.get_text_config().pad_token_id
    if stated is not None or not is_trained:
        return stated
    folder = resolve_folder(getattr(section, "tokenizer_path", None) or section.path, "tokenizer")
    if not (folder / "tokenizer_config.json").is_file():
        return None
    tokenizer = load_tokenizer(str(folder), trust_remote_code=bool(getattr(section, "trust_remote_code", False)))
    found: int | None = tokenizer.pad_token_id
    return found


def _find_file_form(module: TokenModel, folder: Path) -> None:
    """Find out how the model's tensors lie in files; refuse files that have other names.

    Raises:
        ConfigError: some tensors are in no file, or cannot be saved as files have them; names one.
    """
    # The head of a value model is written by this engine, and a fresh one is in no file.
    tensors = {name: tensor for name, tensor in module.named_weights() if name not in (SCORE_WEIGHT, SCORE_BIAS)}
    model = getattr(module, "causal_lm", module.backbone)
    module.file_form = find_file_form(model, ((name, tensor.shape) for name, tensor in tensors.items()))
    untied = {id(tensor): name for name, tensor in reversed(tensors.items())}.values()
    wanted = {name: module.file_form.of(name).names for name in untied}
    require_same_names(folder, wanted, module.backbone.base_model_prefix, module.hf_config.model_type)


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
