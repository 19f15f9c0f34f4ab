"""Images of a batch on their way into a vision-language model.

::

    multi_modal_inputs   one mapping a row, {} or None for text alone:   pixel_values [patches or images, ...]
                                                                         image_grid_thw [images, 3]  (where the model has it)
    input_ids            hold the model's image token once for every place that an image takes

The tensors of a pass are those of its rows, one behind the other. Which tokens stand for images is read from the ids, and
models whose positions depend on the shape of an image are left to find them themselves.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

from rl_core.errors import ConfigError, DataError
from rl_dataproto import ColumnError, DataProto, gather_multi_modal
from torch import Tensor
from transformers import PreTrainedModel

COLUMN: Final = "multi_modal_inputs"
"""Object column of a batch: what a processor made of a row's images."""

_TOKEN_TYPES: Final = ("token_type_ids", "mm_token_type_ids")
"""Names under which models want to be told which tokens are an image's; a processor writes them for prompts only."""


def images_of(batch: DataProto) -> dict[str, Tensor]:
    """The images of all rows of ``batch``, by the names of a model's arguments; empty for a batch of text.

    Raises:
        DataError: tensors of several rows do not fit behind each other.
    """
    rows = batch.non_tensor_batch.get(COLUMN)
    if rows is None:
        return {}
    kept = [{name: value for name, value in (row or {}).items() if name not in _TOKEN_TYPES} for row in rows]
    try:
        return gather_multi_modal(kept)
    except ColumnError as error:
        msg = f"the column {COLUMN!r} of the batch cannot be put together: {error}"
        raise DataError(msg) from error


def has_images(batch: DataProto) -> bool:
    """Whether a row of ``batch`` has some."""
    rows = batch.non_tensor_batch.get(COLUMN)
    return rows is not None and any(
        value is not None and name not in _TOKEN_TYPES for row in rows for name, value in (row or {}).items()
    )


def require_images_fit(found: bool, *, padded: bool, num_ranks: int) -> None:
    """Refuse what cannot be computed right yet; the same answer on every rank.

    Args:
        found: whether a row on any rank has some.
        padded: whether rows are padded.
        num_ranks: workers that compute together.

    Raises:
        ConfigError: rows are packed, or there are several workers.
    """
    if found and not padded:
        msg = (
            f"the batch has images ({COLUMN}), and rows are packed: a packed row has no place for positions and masks that "
            "depend on images. Set model.use_remove_padding=False"
        )
        raise ConfigError(msg)
    if found and num_ranks > 1:
        msg = (
            f"the batch has images ({COLUMN}), and {num_ranks} workers share the model. One without images in a pass would "
            "not compute the vision tower that the others wait for. Train with images on one worker"
        )
        raise ConfigError(msg)


def image_arguments(backbone: PreTrainedModel, images: Mapping[str, Tensor], input_ids: Tensor) -> dict[str, Any]:
    """Further keyword arguments of a padded pass.

    Args:
        backbone: of the model.
        images: from ``images_of``; none for a pass of text.
        input_ids: [B, L].

    Raises:
        ConfigError: the model takes no such inputs.
        DataError: there are image tokens without images.
    """
    config: Any = backbone.config
    token = next(
        (n for key in ("image_token_id", "image_token_index") if (n := getattr(config, key, None)) is not None), None
    )
    if not images:
        if hasattr(config, "vision_config") and token is not None and bool((input_ids == token).any()):
            msg = f"there are image tokens ({token}) in rows without images; the column {COLUMN!r} brings what they stand for"
            raise DataError(msg)
        return {}
    known = inspect.signature(backbone.forward).parameters
    if strange := sorted(name for name in images if name not in known or name in ("input_ids", "attention_mask")):
        msg = (
            f"the column {COLUMN!r} has {', '.join(strange)}, which model type {config.model_type!r} does not take. Train a "
            "vision-language model on images, or leave the column out"
        )
        raise ConfigError(msg)
    if any("video" in name for name in images) or token is None:
        msg = f"model type {config.model_type!r} is trained on text and images; the column {COLUMN!r} has {sorted(images)}"
        raise ConfigError(msg)
    dtype = backbone.dtype
    found: dict[str, Any] = {
        name: values.to(dtype) if values.is_floating_point() else values for name, values in images.items()
    }
    types = (input_ids == token).long()
    found |= {name: types for name in _TOKEN_TYPES if name in known}
    rope = getattr(config.get_text_config(), "rope_parameters", None) or {}
    if "mrope_section" in rope:
        found["position_ids"] = None
    return found
