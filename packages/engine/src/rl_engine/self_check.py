"""What an engine finds out about a model before it trains it: does packing keep its sequences apart?

Which models do cannot be read from their configuration, and one that does not fails without a word: its log-probs are
those of another text. So the model itself is asked. Two passes over two packed sequences differ only in the first one;
the second must come out the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from rl_core.algorithms.precision import widen
from rl_core.errors import ConfigError
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from rl_engine.packing import ModelInputs, pack

_LENGTHS: Final = (5, 6)
_LEAK: Final = {torch.float64: 1e-6, torch.float32: 1e-3}
"""Change of a hidden state, relative to the largest one, that rounding cannot explain."""


def require_separable_type(config: PreTrainedConfig) -> None:
    """Refuse, before any weight is loaded, a type of model that carries a state from token to token.

    Raises:
        ConfigError: it is one; says what to set.
    """
    cls: Any = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    for candidate in cls if isinstance(cls, tuple) else (cls,):
        if getattr(candidate, "_is_stateful", False):
            raise ConfigError(_refusal(config, "it carries a state from each token to the next"))


def require_separate_sequences(
    hidden_states: Callable[[ModelInputs], Tensor], config: PreTrainedConfig, device: torch.device | str
) -> None:
    """Ask a model whether a packed sequence sees the one before it. Collective where the model is.

    Args:
        hidden_states: one pass without gradient, [1, total, H].
        config: of the model.
        device: of the passes.

    Raises:
        ConfigError: it does; says what to set.
    """
    second = hidden_states(two_sequences(config, 0).to(device))[0, _LENGTHS[0] :]
    after_other = hidden_states(two_sequences(config, 1).to(device))[0, _LENGTHS[0] :]
    limit = _LEAK.get(second.dtype, 0.05) * float(widen(second).abs().max())
    change = float((widen(second) - widen(after_other)).abs().max())
    if not change <= limit:
        raise ConfigError(
            _refusal(config, f"a sequence changes its hidden states by {change:.3g} with the one before it")
        )


def two_sequences(config: PreTrainedConfig, variant: int) -> ModelInputs:
    """Two packed sequences; ``variant`` changes every token of the first."""
    size = config.get_text_config().vocab_size
    first = (torch.arange(_LENGTHS[0]) * 7 + 1 + 3 * variant) % size
    second = (torch.arange(_LENGTHS[1]) * 5 + 2) % size
    return pack(torch.cat([first, second]), _LENGTHS, (0, 0))


def _refusal(config: PreTrainedConfig, reason: str) -> str:
    return (
        f"model type {config.model_type!r} cannot keep packed sequences apart: {reason}. Set "
        "model.use_remove_padding=False, which pads instead"
    )
