"""A causal language model of a few hundred weights, as pure functions of a dict of named tensors.

::

    x0 = embed[ids]                                        model.embed_tokens.weight      [V, H]
    x  = x + tanh(x @ token.T + prefix_mean(x) @ context.T)  model.layers.{i}.token.weight  [H, H], .context.weight [H, H]
    logits = x @ head.T                                    lm_head.weight                 [V, H] (may be tied)
    value  = x @ score.T                                   score.weight                   [1, H] (value models)

``prefix_mean`` averages positions 0..t, so a token depends on its whole past and right-padding changes nothing. Everything
is float64: parallel and serial runs then agree to 1e-10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from rl_core.contracts.weights import WeightManifest, WeightSpec
from torch import Tensor

EMBED = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
SCORE = "score.weight"


@dataclass(frozen=True, kw_only=True)
class TinyConfig:
    """Sizes of the model. Read from ``model.override_config`` of a run."""

    vocab_size: int = 48
    hidden_size: int = 16
    num_layers: int = 2
    tie_word_embeddings: bool = False
    init_seed: int = 0

    @classmethod
    def from_model(cls, model: Any) -> TinyConfig:
        """The sizes that the ``model`` section asks for; ``path`` is only a name."""
        return cls(**dict(model.override_config or {}))


def layer_names(layer: int) -> tuple[str, str]:
    """Names of a layer's two matrices: of the token itself, and of its context."""
    return f"model.layers.{layer}.token.weight", f"model.layers.{layer}.context.weight"


def shapes(config: TinyConfig, *, value_head: bool = False) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor, tied ones included, in manifest order."""
    vocab, hidden = config.vocab_size, config.hidden_size
    result: dict[str, tuple[int, ...]] = {EMBED: (vocab, hidden)}
    for layer in range(config.num_layers):
        for name in layer_names(layer):
            result[name] = (hidden, hidden)
    if value_head:
        result[SCORE] = (1, hidden)
    else:
        result[HEAD] = (vocab, hidden)
    return result


def init_weights(config: TinyConfig, *, value_head: bool = False) -> dict[str, Tensor]:
    """Fresh float64 weights, the same for the same config whatever the role; a tied head *is* the embedding."""
    generator = torch.Generator().manual_seed(config.init_seed)
    weights: dict[str, Tensor] = {}
    for name, shape in shapes(config, value_head=False).items():
        if name == HEAD and config.tie_word_embeddings:
            weights[name] = weights[EMBED]
            continue
        scale = 0.5 if name == EMBED else config.hidden_size**-0.5
        weights[name] = torch.randn(shape, generator=generator, dtype=torch.float64) * scale
    if value_head:
        weights.pop(HEAD)
        weights[SCORE] = torch.zeros(1, config.hidden_size, dtype=torch.float64)
    return weights


def manifest(
    config: TinyConfig, *, value_head: bool = False, owners: dict[str, tuple[int, ...]] | None = None
) -> WeightManifest:
    """The model's weight manifest; ``owners`` gives the ranks that hold each tensor."""
    tied = {HEAD: EMBED} if config.tie_word_embeddings and not value_head else {}
    return WeightManifest(
        entries=tuple(
            WeightSpec(
                name=name,
                shape=shape,
                dtype="float64",
                owner_ranks=(owners or {}).get(name, (0,)),
                tied_to=tied.get(name),
            )
            for name, shape in shapes(config, value_head=value_head).items()
        )
    )


def prefix_mean(x: Tensor) -> Tensor:
    """[B, T, H] -> mean over positions 0..t, [B, T, H]."""
    counts = torch.arange(1, x.shape[1] + 1, dtype=x.dtype, device=x.device)
    return x.cumsum(dim=1) / counts[None, :, None]


def layer_forward(x: Tensor, token: Tensor, context: Tensor) -> Tensor:
    """One layer, [B, T, H] -> [B, T, H]."""
    return x + torch.tanh(x @ token.T + prefix_mean(x) @ context.T)


def hidden_states(weights: dict[str, Tensor], input_ids: Tensor, num_layers: int) -> Tensor:
    """[B, T] token ids -> [B, T, H], all layers in this process."""
    x = weights[EMBED][input_ids]
    for layer in range(num_layers):
        token, context = layer_names(layer)
        x = layer_forward(x, weights[token], weights[context])
    return x


def logits(weights: dict[str, Tensor], input_ids: Tensor, num_layers: int) -> Tensor:
    """[B, T] token ids -> [B, T, V] next-token logits."""
    return hidden_states(weights, input_ids, num_layers) @ weights[HEAD].T
