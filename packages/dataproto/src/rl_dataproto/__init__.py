"""The batch that crosses process borders in RL post-training.

Importing this package loads neither torch nor tensordict; the first name that is used does.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rl_dataproto._version import __version__

if TYPE_CHECKING:
    from rl_dataproto.assemble import union_numpy_dict, union_tensor_dict
    from rl_dataproto.batch import DataProto
    from rl_dataproto.batch_data import BatchData
    from rl_dataproto.collective import all_gather_data_proto
    from rl_dataproto.columns import object_array
    from rl_dataproto.compare import deep_equal
    from rl_dataproto.config import DataProtoConfig
    from rl_dataproto.errors import (
        ColumnError,
        ConflictError,
        DataProtoError,
        DataProtoTypeError,
        EmptyConcatError,
        FutureTimeoutError,
        MissingColumnError,
        RowCountError,
        RowIndexError,
        UnevenChunkError,
        WireError,
    )
    from rl_dataproto.frames import from_frames, recv, send, to_frames
    from rl_dataproto.future import DataProtoFuture, Future, is_future, register_future, resolve_all
    from rl_dataproto.handles import ColumnHandle, NpyRowSource, RowSource
    from rl_dataproto.item import DataProtoItem, collate_fn
    from rl_dataproto.jagged import Jagged, is_jagged, jagged_from_rows, lengths, pad_jagged, to_jagged
    from rl_dataproto.layout import fold_batch_dim, unfold_batch_dim
    from rl_dataproto.memory import release_buffers
    from rl_dataproto.meta import copy_meta, merge_meta, union_meta
    from rl_dataproto.microbatch import PADDING_ROW, restore_order, token_budget_micro_batches
    from rl_dataproto.multimodal import gather_multi_modal
    from rl_dataproto.padding import PADDING_SIZE_KEY, pad_dataproto_to_divisor, unpad_dataproto
    from rl_dataproto.wire import (
        deserialize_single_tensor,
        deserialize_tensordict,
        serialize_single_tensor,
        serialize_tensordict,
    )

_HOMES = {
    "assemble": ("union_numpy_dict", "union_tensor_dict"),
    "batch": ("DataProto",),
    "batch_data": ("BatchData",),
    "collective": ("all_gather_data_proto",),
    "columns": ("object_array",),
    "compare": ("deep_equal",),
    "config": ("DataProtoConfig",),
    "errors": (
        "ColumnError",
        "ConflictError",
        "DataProtoError",
        "DataProtoTypeError",
        "EmptyConcatError",
        "FutureTimeoutError",
        "MissingColumnError",
        "RowCountError",
        "RowIndexError",
        "UnevenChunkError",
        "WireError",
    ),
    "frames": ("from_frames", "recv", "send", "to_frames"),
    "future": ("DataProtoFuture", "Future", "is_future", "register_future", "resolve_all"),
    "handles": ("ColumnHandle", "NpyRowSource", "RowSource"),
    "item": ("DataProtoItem", "collate_fn"),
    "jagged": ("Jagged", "is_jagged", "jagged_from_rows", "lengths", "pad_jagged", "to_jagged"),
    "layout": ("fold_batch_dim", "unfold_batch_dim"),
    "memory": ("release_buffers",),
    "meta": ("copy_meta", "merge_meta", "union_meta"),
    "microbatch": ("PADDING_ROW", "restore_order", "token_budget_micro_batches"),
    "multimodal": ("gather_multi_modal",),
    "padding": ("PADDING_SIZE_KEY", "pad_dataproto_to_divisor", "unpad_dataproto"),
    "wire": (
        "deserialize_single_tensor",
        "deserialize_tensordict",
        "serialize_single_tensor",
        "serialize_tensordict",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "PADDING_ROW",
    "PADDING_SIZE_KEY",
    "BatchData",
    "ColumnError",
    "ColumnHandle",
    "ConflictError",
    "DataProto",
    "DataProtoConfig",
    "DataProtoError",
    "DataProtoFuture",
    "DataProtoItem",
    "DataProtoTypeError",
    "EmptyConcatError",
    "Future",
    "FutureTimeoutError",
    "Jagged",
    "MissingColumnError",
    "NpyRowSource",
    "RowCountError",
    "RowIndexError",
    "RowSource",
    "UnevenChunkError",
    "WireError",
    "__version__",
    "all_gather_data_proto",
    "collate_fn",
    "copy_meta",
    "deep_equal",
    "deserialize_single_tensor",
    "deserialize_tensordict",
    "fold_batch_dim",
    "from_frames",
    "gather_multi_modal",
    "is_future",
    "is_jagged",
    "jagged_from_rows",
    "lengths",
    "merge_meta",
    "object_array",
    "pad_dataproto_to_divisor",
    "pad_jagged",
    "recv",
    "register_future",
    "release_buffers",
    "resolve_all",
    "restore_order",
    "send",
    "serialize_single_tensor",
    "serialize_tensordict",
    "to_frames",
    "to_jagged",
    "token_budget_micro_batches",
    "unfold_batch_dim",
    "union_meta",
    "union_numpy_dict",
    "union_tensor_dict",
    "unpad_dataproto",
]


def __getattr__(name: str) -> Any:
    module = _HOME_OF.get(name)
    if module is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
