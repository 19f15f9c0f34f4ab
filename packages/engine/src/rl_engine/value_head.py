"""A language model that judges: a backbone and one number for each token.

Names are those of a ``...ForSequenceClassification`` checkpoint with one label, so critics and reward models are read
from and written to the same files: the backbone under its usual prefix, ``score.weight`` [1, H] and, where the
checkpoint has it, ``score.bias`` [1].
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rl_core.algorithms.precision import widen
from rl_core.errors import ConfigError
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel

from rl_engine.checkpoint_files import read_tensors
from rl_engine.models import load_config, load_pretrained, resolve_folder
from rl_engine.packing import ModelInputs
from rl_engine.token_model import TokenModel

_log = logging.getLogger(__name__)

SCORE_WEIGHT, SCORE_BIAS = "score.weight", "score.bias"


class ValueModel(TokenModel):
    """A backbone with a scalar head.

    Attributes:
        pad_token_id: of a reward model that knows one: the score of a sequence is read on its last token that is not this
            one, as transformers reads it. None reads every value where it stands.
    """

    outputs = frozenset({"values"})
    pad_token_id: int | None = None

    def __init__(self, backbone: PreTrainedModel, *, bias: bool = False) -> None:
        """Put a head on ``backbone``; its weights are 0, so a fresh critic expects nothing of any state.

        Args:
            backbone: gives hidden states.
            bias: whether the head has a bias.
        """
        super().__init__()
        self._backbone_name = backbone.base_model_prefix or "model"
        self.add_module(self._backbone_name, backbone)
        size = backbone.config.get_text_config().hidden_size
        self.score = nn.Linear(size, 1, bias=bias, dtype=backbone.dtype)
        nn.init.zeros_(self.score.weight)
        if bias:
            nn.init.zeros_(self.score.bias)

    @property
    def backbone(self) -> PreTrainedModel:
        """See ``TokenModel``."""
        model: PreTrainedModel = getattr(self, self._backbone_name)
        return model

    def heads(self, hidden: Tensor, tokens: Tensor, wanted: Collection[str]) -> dict[str, Tensor]:
        """See ``TokenModel``; the head works in float32, since values of one run differ little."""
        values = widen(hidden) @ widen(self.score.weight)[0]
        return {"values": values if self.score.bias is None else values + widen(self.score.bias)}

    def forward(self, inputs: ModelInputs, wanted: Collection[str]) -> dict[str, Tensor]:
        """See ``TokenModel``; asked for ``"hidden"``, the hidden states of the whole pass."""
        if "hidden" in wanted:
            return {"hidden": self.all_hidden_states(inputs)}
        if self.pad_token_id is not None:
            inputs = read_before_padding(inputs, self.pad_token_id)
        return super().forward(inputs, wanted)


def read_before_padding(inputs: ModelInputs, pad_token_id: int) -> ModelInputs:
    """The pass with every place that holds ``pad_token_id`` read on the last other token before it in its sequence.

    A sequence without another token before is read on its first one. So a sequence that ends in padding, or in an
    end-of-text token that serves as padding too, gets the score that a ``...ForSequenceClassification`` model gives it.
    """
    ids, positions = inputs.input_ids.reshape(-1), inputs.position_ids.reshape(-1)
    places = torch.arange(len(ids), device=ids.device)
    last = torch.where(ids == pad_token_id, -1, places).cummax(0).values
    first = inputs.select - positions[inputs.select]
    return replace(inputs, select=torch.maximum(last[inputs.select], first))


def load_value_model(section: Any, dtype: torch.dtype, *, require_head: bool = False) -> ValueModel:
    """A value model on the backbone of any checkpoint, with its score head if it has one.

    Args:
        section: the ``model`` section.
        dtype: of the weights in memory.
        require_head: refuse a checkpoint without score head: a scorer that nobody trains would say 0 of everything.

    Raises:
        ConfigError: as ``load_causal_lm``; or the head is missing, or has several labels.
    """
    folder = resolve_folder(section.path)
    config = load_config(section, folder)
    stored = read_tensors(folder, (SCORE_WEIGHT, SCORE_BIAS))
    if SCORE_WEIGHT not in stored and require_head:
        msg = (
            f"{folder} has no score head ({SCORE_WEIGHT}), so it cannot score responses; it holds a "
            f"{', '.join(config.architectures or ()) or config.model_type}. Give the path of a reward model saved as a "
            "sequence or token classifier with one label"
        )
        raise ConfigError(msg)
    model = ValueModel(load_pretrained(AutoModel, folder, section, config, dtype), bias=SCORE_BIAS in stored)
    if SCORE_WEIGHT in stored:
        _fill_head(model, stored, folder)
    else:
        _log.info("%s has no score head; the value model starts with one of zeros", folder)
    return model.eval()


def _fill_head(model: ValueModel, stored: dict[str, Tensor], folder: Path) -> None:
    weight, expected = stored[SCORE_WEIGHT], model.score.weight
    if weight.shape != expected.shape:
        msg = (
            f"the score head in {folder} has shape {tuple(weight.shape)}; a value or reward model has one output, shape "
            f"{tuple(expected.shape)}. Give a checkpoint with one label"
        )
        raise ConfigError(msg)
    with torch.no_grad():
        expected.copy_(weight)
        if SCORE_BIAS in stored:
            model.score.bias.copy_(stored[SCORE_BIAS])
