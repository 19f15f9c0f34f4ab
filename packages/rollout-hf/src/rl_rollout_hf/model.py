"""The model as the engine needs it: built from its configuration, with memory for weights that the trainer will bring."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from typing import Final

import torch
from rl_core.errors import ConfigError
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from rl_rollout_hf.attention import ROWS

_WINDOWS: Final = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
"""Kind of layer -> the field with the number of tokens that it looks back."""
_CHANGING_ROPE: Final = ("dynamic", "longrope")
"""Rotary embeddings that depend on the longest sequence of a batch once that is longer than the original model's."""


def build_empty(
    config: PreTrainedConfig, dtype: torch.dtype, device: torch.device, *, trust_remote_code: bool
) -> PreTrainedModel:
    """The model in evaluation mode, its weights memory without values; no weight is read or drawn.

    Raises:
        ConfigError: a buffer that no checkpoint holds cannot be computed without the weights.
    """
    config = copy.deepcopy(config)
    # Whatever else the trainer uses is made for other masks than those of a step.
    # Torch's kernels, which ROWS calls, would leave a cap on scores out without a word.
    is_capped = bool(getattr(config.get_text_config(), "attn_logit_softcapping", None))
    config._attn_implementation = "eager" if is_capped or config._attn_implementation == "eager" else ROWS
    # In float32, torch's default: another type would change that default for every thread while the model is built.
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, trust_remote_code=trust_remote_code
        )
    stored = {id(tensor) for _, tensor in named_weights(model)}
    for tensor in (*model.parameters(), *model.buffers()):
        if id(tensor) in stored and tensor.is_floating_point():
            tensor.data = tensor.data.to(dtype)
    model.config.dtype = dtype
    model.to_empty(device=device)
    model.tie_weights()
    _compute_buffers(model)
    return model.eval().requires_grad_(False)


def named_weights(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Every parameter and saved buffer under its name in the checkpoint, tied ones under each of their names."""
    yield from model.named_parameters(remove_duplicate=False)
    saved = model.state_dict(keep_vars=True)
    for name, buffer in model.named_buffers(remove_duplicate=False):
        if name in saved:
            yield name, buffer


def require_servable(config: PreTrainedConfig, max_model_len: int) -> None:
    """Refuse a type of model whose past the row cache cannot hold.

    Raises:
        ConfigError: names the type, and what to do.
    """
    for problem in _type_problems(config, max_model_len):
        raise ConfigError(refusal(config, problem))


def _type_problems(config: PreTrainedConfig, max_model_len: int) -> Iterator[str]:
    text = config.get_text_config()
    if getattr(config, "is_encoder_decoder", False):
        yield "it has an encoder"
    if getattr(config, "vision_config", None) is not None:
        yield "it reads images"
    kinds = tuple(dict.fromkeys(getattr(text, "layer_types", None) or ()))
    if not kinds and getattr(text, "sliding_window", None) is not None:
        kinds = ("sliding_attention",)
    for kind in kinds:
        window = getattr(text, _WINDOWS[kind], None) if kind in _WINDOWS else None
        if kind != "full_attention" and (window is None or window < max_model_len):
            reach = f" of {window} tokens, fewer than rollout.max_model_len {max_model_len}" if window else ""
            yield f"it has layers of kind {kind!r}{reach}"
    rope = getattr(text, "rope_parameters", None) or {}
    original = rope.get("original_max_position_embeddings") or getattr(text, "max_position_embeddings", None)
    if rope.get("rope_type") in _CHANGING_ROPE and original is not None and max_model_len > original:
        yield f"its {rope['rope_type']!r} rotary embedding depends on the longest sequence of a batch"


def require_arguments(model: PreTrainedModel) -> None:
    """Refuse a model that carries its past in another way than through positions, mask and cache.

    Raises:
        ConfigError: names the type, and what to do.
    """
    if getattr(model, "_is_stateful", False):
        raise ConfigError(refusal(model.config, "it carries a state from each token to the next"))
    for module in (model, model.base_model):
        known = inspect.signature(module.forward).parameters
        missing = [name for name in ("attention_mask", "position_ids") if name not in known]
        if missing or not {"cache", "past_key_values"} & set(known):
            raise ConfigError(refusal(model.config, f"its forward pass takes no {', '.join(missing) or 'cache'}"))


def cache_argument(model: PreTrainedModel) -> str:
    """What the installed transformers calls the cache in a forward pass."""
    return "cache" if "cache" in inspect.signature(model.base_model.forward).parameters else "past_key_values"


def refusal(config: PreTrainedConfig, problem: str) -> str:
    """The message for a model that cannot be served."""
    return (
        f"rollout 'hf' cannot serve model type {config.model_type!r}: {problem}. Use a rollout engine that can "
        "(rollout.name), a model with full attention in every layer, or a shorter rollout.max_model_len where that is it"
    )


def _compute_buffers(model: PreTrainedModel) -> None:
    """Give the buffers that are not saved their values, as transformers does when it loads a checkpoint."""
    stored = {id(tensor) for _, tensor in named_weights(model)}
    computed = [(name, buffer) for name, buffer in model.named_buffers() if id(buffer) not in stored]
    for _, buffer in computed:
        buffer.fill_(_unset(buffer))
    for tensor in (*model.parameters(), *model.buffers()):
        if id(tensor) in stored:
            tensor._is_hf_initialized = True
    model.initialize_weights()
    unknown = [name for name, buffer in computed if _is_unset(buffer)]
    if unknown:
        raise ConfigError(refusal(model.config, f"only its constructor can compute its buffers {', '.join(unknown)}"))


def _unset(buffer: Tensor) -> float | int | bool:
    if buffer.is_floating_point():
        return float("nan")
    return True if buffer.dtype == torch.bool else torch.iinfo(buffer.dtype).min


def _is_unset(buffer: Tensor) -> bool:
    """Whether a buffer that is not empty still holds nothing but the mark."""
    if buffer.numel() == 0 or buffer.dtype == torch.bool:
        return False
    return bool(buffer.isnan().all() if buffer.is_floating_point() else (buffer == _unset(buffer)).all())
