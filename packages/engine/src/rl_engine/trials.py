"""What a model is asked before it is trained: which attention it can have, whether its sequences stay apart.

Every function computes a few tokens with the sharded model, so all are collective.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rl_engine.attention import choose_attention
from rl_engine.backend_hooks import BackendHooks
from rl_engine.self_check import require_separate_sequences, two_sequences
from rl_engine.sequence_parallel_attention import use_sequence_parallel
from rl_engine.token_model import PolicyModel, TokenModel


@torch.no_grad()
def find_attention(engine: BackendHooks, module: TokenModel) -> None:
    """Find the fastest attention that this model and machine have for packed sequences."""
    if engine.pads:
        return
    hidden_states = _trial(engine, module)
    engine.attention = choose_attention(module.hf_config, engine.device, engine.compute_dtype, hidden_states)


@torch.no_grad()
def share_sequences(engine: BackendHooks, module: TokenModel) -> None:
    """Cut every pack over the ranks that share it, if the model is the same with it."""
    parallel = engine.sequence_parallel
    if parallel is None:
        return
    hidden_states = _trial(engine, module)
    expected = hidden_states()
    module.sequence_parallel = parallel
    use_sequence_parallel(module.hf_config, parallel, hidden_states, expected)


def _trial(engine: BackendHooks, module: TokenModel) -> Callable[[], Tensor]:
    """A pass over two packed sequences, always the same. Collective."""
    inputs = two_sequences(module.hf_config, 0).to(engine.device)
    module.eval()

    def hidden_states() -> Tensor:
        found: Tensor = module(inputs, {"hidden"})["hidden"]
        engine.after_forward()
        return found

    return hidden_states


@torch.no_grad()
def check_model(engine: BackendHooks, module: TokenModel) -> None:
    """Ask the model what it does to logits, and whether packed sequences stay apart."""
    module.eval()
    if isinstance(module, PolicyModel):
        module(two_sequences(module.hf_config, 0).to(engine.device), {"transform"})
        engine.after_forward()
    if not engine.pads:
        require_separate_sequences(lambda inputs: module(inputs, {"hidden"})["hidden"], module.hf_config, engine.device)
        engine.after_forward()
