"""Model FLOPs of a pass: what the mathematics needs, whatever the kernels do.

For a token, each weight of a matrix that it meets is one multiplication and one addition, so 2 FLOPs; the experts of a
mixture count as far as a token is sent to them. For a pair of a token and an earlier one of its sequence that it attends
to, each of the ``head_dim`` numbers of each head is met twice (scores, weighted values), so 4 FLOPs. The output layer
counts for response tokens alone: no other needs logits. Norms, activations, rotary embeddings and the recurrence of
linear attention are left out; their projections are not.

A backward pass costs twice its forward pass: gradients of inputs and of weights. Frozen weights have none of the latter,
so with low-rank adapters the matrices cost as much again as forward. Recomputed activations never count.

The same count as Kaplan et al. 2020 (arXiv:2001.08361), section 2.1, with attention over the real lengths.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedConfig


@dataclass(frozen=True, slots=True)
class ModelFlops:
    """Counts the FLOPs of one model.

    Attributes:
        matrix_weights: weights of matrices that every token meets, experts in proportion.
        head_weights: those of the output layer, which response tokens meet.
        pair_width: numbers compared for a pair of tokens, ``heads * head_dim`` summed over layers that attend to all.
        windows: ``(window, pair_width)`` of the layers that attend to so many tokens at most.
        trained_share: 1 where all weights are trained, 0 where the matrices are frozen below adapters.
    """

    matrix_weights: float
    head_weights: int
    pair_width: int
    windows: tuple[tuple[int, int], ...] = ()
    trained_share: float = 1.0

    def forward(self, lengths: Iterable[int], responses: Iterable[int]) -> float:
        """Of a pass without gradient.

        Args:
            lengths: tokens of each sequence.
            responses: response tokens of each.
        """
        lengths = list(lengths)
        return self._matrices(lengths, responses) + self._attention(lengths)

    def forward_backward(self, lengths: Iterable[int], responses: Iterable[int]) -> float:
        """Of a pass with its gradient; arguments as for ``forward``."""
        lengths = list(lengths)
        return (2 + self.trained_share) * self._matrices(lengths, responses) + 3 * self._attention(lengths)

    def _matrices(self, lengths: Sequence[int], responses: Iterable[int]) -> float:
        return 2 * (self.matrix_weights * sum(lengths) + self.head_weights * sum(responses))

    def _attention(self, lengths: Sequence[int]) -> float:
        pairs = self.pair_width * sum(length * length / 2 for length in lengths)
        for window, width in self.windows:
            # The first tokens see fewer than a window.
            pairs += width * sum(min(n, window) * (n - min(n, window) / 2) for n in lengths)
        return 4 * pairs


def model_flops(
    backbone: nn.Module, config: PreTrainedConfig, *, head: nn.Module | None, is_frozen: bool = False
) -> ModelFlops:
    """The count for a loaded model; shapes of sharded weights are those of the whole ones.

    Args:
        backbone: embeddings and blocks.
        config: of the model, for heads, windows and experts.
        head: its output layer where it scores tokens of a vocabulary.
        is_frozen: only adapters are trained.
    """
    text = config.get_text_config()
    backbone = getattr(backbone, "language_model", backbone)  # images are not counted
    embedding = {id(weight) for module in _embeddings(backbone) for weight in module.parameters()}
    share = _active_share(text)
    weights = 0.0
    for name, weight in backbone.named_parameters():
        if weight.ndim >= 2 and id(weight) not in embedding and "lora_" not in name:
            weights += weight.numel() * (share if ".experts." in name else 1.0)
    heads = text.num_attention_heads
    width = heads * (getattr(text, "head_dim", None) or text.hidden_size // heads)
    full, windows = _layers(text)
    return ModelFlops(
        matrix_weights=weights,
        head_weights=0 if head is None else sum(weight.numel() for weight in head.parameters() if weight.ndim > 1),
        pair_width=full * width,
        windows=tuple((window, count * width) for window, count in windows),
        trained_share=0.0 if is_frozen else 1.0,
    )


def _embeddings(backbone: nn.Module) -> list[nn.Module]:
    from torch.nn import Embedding  # noqa: PLC0415 - the count itself needs no torch

    return [module for module in backbone.modules() if isinstance(module, Embedding)]


def _active_share(text: Any) -> float:
    """Share of the experts that a token is sent to; 1 for a model without any."""
    experts = next(
        (n for key in ("num_experts", "num_local_experts", "n_routed_experts") if (n := getattr(text, key, None))), None
    )
    chosen = getattr(text, "num_experts_per_tok", None)
    return chosen / experts if experts and chosen else 1.0


def _layers(text: Any) -> tuple[int, list[tuple[int, int]]]:
    """Layers that attend to all tokens, and ``(window, count)`` of those that attend to the latest ones."""
    kinds = getattr(text, "layer_types", None) or ["full_attention"] * text.num_hidden_layers
    window = getattr(text, "sliding_window", None)
    sliding = sum(kind == "sliding_attention" for kind in kinds)
    if window is None:
        return sum(kind == "full_attention" for kind in kinds) + sliding, []
    return sum(kind == "full_attention" for kind in kinds), [(window, sliding)] if sliding else []
