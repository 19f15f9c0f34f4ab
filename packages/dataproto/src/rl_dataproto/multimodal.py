"""Images and other inputs of a batch in which some rows have none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_dataproto.errors import ColumnError


def gather_multi_modal(rows: Iterable[Mapping[str, Any] | None]) -> dict[str, Tensor]:
    """Concatenate the multi-modal inputs of rows, skipping rows and keys that have nothing.

    Args:
        rows: For every row a mapping such as ``{"pixel_values": [patches, ...]}``, an empty one, or None; a
            value may be None. An object column can be passed as it is.

    Returns:
        Every key that any row has, with the rows' tensors behind each other along dimension 0, in row order.
        A key that no row has is absent, so a batch of text alone gives ``{}``.

    Raises:
        ColumnError: Values of one key differ in dtype or in more than their first dimension; names the key and
            both rows.
    """
    found: dict[str, list[tuple[int, Tensor]]] = {}
    for number, row in enumerate(rows):
        for name, value in (row or {}).items():
            if value is not None:
                found.setdefault(name, []).append((number, torch.as_tensor(value)))
    for name, values in found.items():
        first_row, first = values[0]
        for number, value in values:
            if value.ndim == 0 or value.shape[1:] != first.shape[1:] or value.dtype != first.dtype:
                msg = (
                    f"Multi-modal input {name!r} is {tuple(first.shape)} {first.dtype} in row {first_row} and "
                    f"{tuple(value.shape)} {value.dtype} in row {number}: only the first dimension may differ."
                )
                raise ColumnError(msg)
    return {name: torch.cat([value for _, value in values]) for name, values in found.items()}
