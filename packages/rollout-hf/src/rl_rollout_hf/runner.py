"""The passes of the model over the row cache. Runs on the engine's one device thread and knows no requests' wishes.

Every token but the last of a sequence is read when it is admitted (``fill``); the last one goes through the same pass as
all other rows (``step``), whose logits are the only ones ever computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from rl_core.algorithms.precision import widen
from rl_core.errors import ConfigError
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from rl_rollout_hf.attention import fitting_kernels
from rl_rollout_hf.cache import Filling, LayerShape, Need, RowCache, Stepping
from rl_rollout_hf.fused_step import FusedStep
from rl_rollout_hf.model import cache_argument, refusal

_UNEQUAL: Final = {torch.float64: 1e-6, torch.float32: 1e-3}
"""Difference of hidden states, relative to the largest one, that rounding cannot explain."""
_UNEQUAL_16_BIT: Final = 0.3
"""The same where rounding may send a token to another expert."""

_MASK_WIDTH: Final = 16


@dataclass(frozen=True, slots=True)
class Batch:
    """Prompts that are read in one pass.

    Attributes:
        prompts: their tokens, each once.
        rows: what they fill.
        sources: for each of ``rows``, the place of its prompt in ``prompts``.
    """

    prompts: tuple[tuple[int, ...], ...]
    rows: tuple[int, ...]
    sources: tuple[int, ...]


def fill_batches(contexts: Sequence[tuple[int, ...]], first_row: int) -> list[Batch]:
    """Group ``contexts``, of the rows from ``first_row`` on, so that little is padding.

    Equal ones are read once. A pass holds those that are more than half as long as its longest. Empty ones need none.
    """
    rows_of: dict[tuple[int, ...], list[int]] = {}
    for row, context in enumerate(contexts, first_row):
        if context:
            rows_of.setdefault(context, []).append(row)
    groups: list[list[tuple[int, ...]]] = []
    for context in sorted(rows_of, key=len, reverse=True):
        if groups and 2 * len(context) > len(groups[-1][0]):
            groups[-1].append(context)
        else:
            groups.append([context])
    return [
        Batch(
            prompts=tuple(group),
            rows=tuple(row for context in group for row in rows_of[context]),
            sources=tuple(place for place, context in enumerate(group) for _ in rows_of[context]),
        )
        for group in groups
    ]


class Runner:
    """A model and how to call it.

    Attributes:
        model: the model.
        device: of it.
        dtype: of weights and cache.
        steps_are_fused: whether steps go by ``FusedStep``; not before ``require_faithful_cache`` has compared it.
    """

    def __init__(self, model: PreTrainedModel, device: torch.device) -> None:
        """Wrap ``model``, which lies on ``device``; its weights need no values."""
        self.model = model
        self._fused = FusedStep.of(model)
        self.steps_are_fused = False
        self.device = device
        self.dtype: torch.dtype = model.config.dtype
        self._argument = cache_argument(model)
        self._is_eager = model.config._attn_implementation == "eager"

    @torch.inference_mode()
    def layer_shapes(self) -> list[LayerShape]:
        """What each layer keeps of a token, found out by a pass over one; the weights need no values for it.

        Raises:
            ConfigError: the layers do not keep keys and values one after another.
        """
        seen = _Shapes()
        ids = torch.zeros(1, 1, dtype=torch.int64, device=self.device)
        try:
            self._call(self.model.base_model, ids, ids, None, seen)
        except (ValueError, NotImplementedError, AttributeError) as error:
            raise ConfigError(refusal(self.model.config, str(error) or type(error).__name__)) from error
        count = self.model.config.get_text_config().num_hidden_layers
        if sorted(seen.found) != list(range(count)):
            problem = f"of its {count} layers, {sorted(seen.found)} keep keys and values"
            raise ConfigError(refusal(self.model.config, problem))
        return [seen.found[index] for index in range(count)]

    def fill(self, cache: RowCache, batch: Batch) -> None:
        """Read the prompts of ``batch`` into their rows."""
        lengths = [len(prompt) for prompt in batch.prompts]
        ids = torch.zeros(len(lengths), max(lengths), dtype=torch.int64)
        for place, prompt in enumerate(batch.prompts):
            ids[place, : lengths[place]] = torch.tensor(prompt)
        positions = torch.arange(max(lengths), device=self.device)[None].expand(len(lengths), -1)
        # Left-aligned, so the causal mask alone hides the padding from every token that counts.
        view = Filling(cache, batch.rows, batch.sources, lengths)
        with fitting_kernels(self.device):
            self._call(self.model.base_model, ids.to(self.device), positions, None, view)

    def step(self, cache: RowCache, tokens: Tensor, positions: Tensor, length: int) -> Tensor:
        """[B, V] logits of what follows ``tokens`` [B] at ``positions`` [B], all below ``length``."""
        if self.device.type == "cuda":
            # Masks of other widths are copied into one of these by the kernels.
            length = min(-(-length // _MASK_WIDTH) * _MASK_WIDTH, cache.length)
        if self._fused is not None and self.steps_are_fused:
            return self._fused(cache, tokens, positions, self._visible(positions, length))
        view = Stepping(cache, positions, length)
        with fitting_kernels(self.device):
            output = self._call(self.model, tokens[:, None], positions[:, None], self._mask(positions, length), view)
        logits: Tensor = output.logits[:, -1]
        return logits

    @torch.inference_mode()
    def require_faithful_cache(self) -> None:
        """Compare two sequences read through the cache with the model alone; needs weights with values.

        Steps are fused from here on where that comes to the same.

        Raises:
            ConfigError: they differ by more than rounding, so the model keeps its past somewhere else too.
        """
        size = self.model.config.get_text_config().vocab_size
        prompts = [tuple((number * step + 1) % size for number in range(count)) for step, count in ((7, 9), (5, 5))]
        cache = RowCache(self.layer_shapes(), self.dtype, self.device)
        length = len(prompts[0])
        need = Need(rows=2, length=length, likely_rows=2, likely_length=length)
        cache.fit(need, 2 * length, kept_rows=0, kept_length=0)
        for batch in fill_batches([prompt[:-1] for prompt in prompts], 0):
            self.fill(cache, batch)
        tokens = torch.tensor([prompt[-1] for prompt in prompts], device=self.device)
        positions = torch.tensor([len(prompt) - 1 for prompt in prompts], device=self.device)
        view = Stepping(cache, positions, length)
        mask = self._mask(positions, length)
        found = self._call(self.model.base_model, tokens[:, None], positions[:, None], mask, view).last_hidden_state
        for row, prompt in enumerate(prompts):
            ids = torch.tensor([prompt], device=self.device)
            expected = self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state[0, -1]
            limit = _UNEQUAL.get(expected.dtype, _UNEQUAL_16_BIT) * float(widen(expected).abs().max())
            change = float((widen(found[row, -1]) - widen(expected)).abs().max())
            if change > limit:  # a model without numbers compares as False; its requests say so
                problem = (
                    f"read through a cache, its hidden states differ by {change:.3g} (rounding explains {limit:.1g})"
                )
                raise ConfigError(refusal(self.model.config, problem))
        if self._fused is not None:
            logits = self._call(self.model, tokens[:, None], positions[:, None], mask, view).logits[:, -1]
            fused = self._fused(cache, tokens, positions, self._visible(positions, length))
            limit = _UNEQUAL[logits.dtype] * float(logits.abs().max())
            self.steps_are_fused = bool((fused - logits).abs().max() <= limit)

    def _visible(self, positions: Tensor, length: int) -> Tensor:
        """[B, 1, 1, length] bool: every row sees what is not right of its position."""
        return (torch.arange(length, device=self.device) <= positions[:, None])[:, None, None, :]

    def _mask(self, positions: Tensor, length: int) -> Tensor:
        """``_visible`` in the form that the model's attention takes."""
        visible = self._visible(positions, length)
        if not self._is_eager:
            return visible
        return torch.zeros(visible.shape, dtype=self.dtype, device=self.device).masked_fill(
            ~visible, torch.finfo(self.dtype).min
        )

    def _call(self, module: Any, ids: Tensor, positions: Tensor, mask: Tensor | None, cache: Cache) -> Any:
        return module(
            input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, **{self._argument: cache}
        )


class _Shapes(Cache):
    """Remembers what layers would store, and stores nothing."""

    is_compileable = False

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.found: dict[int, LayerShape] = {}

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        self.found[layer_idx] = LayerShape(key_states.shape[1], key_states.shape[3], value_states.shape[3])
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return query_length, 0
