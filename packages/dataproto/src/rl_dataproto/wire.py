"""What a batch looks like while it travels between processes.

Every tensor becomes a flat ``uint8`` numpy view of its own rows, whatever its dtype; a jagged column becomes
its values and offsets. numpy hands such views to pickle protocol 5 as out-of-band buffers, so Ray copies them
once, into its object store, and the reader maps them without a copy. Plain ``pickle.dumps`` works too and
carries the bytes in the stream. The TensorDict, storages of views, autograd history and devices stay behind:
what arrives is on the CPU and needs no gradient.

Tensors that arrive through an object store are read-only memory. torch has no read-only tensors, so nothing
stops a write into them, and it would change what other readers see: stages never write into their
input, ``DataProto.clone()`` gives a batch that may be written to.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rl_dataproto.assemble import Unbuilt, columns_of
from rl_dataproto.columns import OpenColumn, OpenDict, closed
from rl_dataproto.errors import ColumnError, WireError
from rl_dataproto.jagged import Jagged

if TYPE_CHECKING:
    from rl_dataproto.base import BatchBase

SerializedTensor = tuple[str, tuple[int, ...], np.ndarray]
SerializedTensorDict = tuple[tuple[int, ...], str | None, dict[str, tuple[Any, ...]]]


def serialize_single_tensor(obj: Tensor) -> SerializedTensor:
    """Describe a dense tensor by dtype name, shape and bytes.

    Args:
        obj: Any strided tensor.

    Returns:
        dtype name, shape, and the bytes as a flat ``uint8`` array; a view when the tensor is on the CPU and
        contiguous.

    Raises:
        ColumnError: A sparse, quantized or nested tensor.
    """
    if obj.layout != torch.strided or obj.is_quantized:
        msg = f"A tensor with layout {obj.layout} (quantized: {obj.is_quantized}) was to be sent: make it dense first."
        raise ColumnError(msg)
    plain = obj.detach().cpu().resolve_conj().resolve_neg().contiguous()
    data = plain.reshape(-1).view(torch.uint8).numpy() if plain.numel() else np.empty(0, np.uint8)
    return str(obj.dtype).removeprefix("torch."), tuple(obj.shape), data


def deserialize_single_tensor(arr: Sequence[Any]) -> Tensor:
    """Rebuild a tensor around its bytes, without a copy.

    Args:
        arr: What :func:`serialize_single_tensor` returned; the bytes may be any buffer.

    Raises:
        WireError: Not three parts, an unknown dtype, or another number of bytes than the shape needs.
    """
    if len(arr) != 3:
        msg = f"A serialised tensor has 3 parts (dtype, shape, bytes), {len(arr)} were found."
        raise WireError(msg)
    name, shape, data = arr
    dtype = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(dtype, torch.dtype):
        msg = f"A serialised tensor names dtype {name!r}, which this torch does not have."
        raise WireError(msg)
    flat = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    if flat.nbytes != np.prod(shape, dtype=np.int64) * dtype.itemsize:
        msg = f"A serialised tensor of shape {tuple(shape)} {dtype} came with {flat.nbytes} bytes."
        raise WireError(msg)
    if not flat.nbytes:
        return torch.empty(tuple(shape), dtype=dtype)
    if not flat.flags.writeable:
        _accept_read_only_memory()
    return torch.from_numpy(flat).view(dtype).view(tuple(shape))


@functools.cache
def _accept_read_only_memory() -> None:
    """Use up torch's once-per-process warning about tensors over read-only arrays, and only that warning.

    The module's docstring tells readers what the warning would; nobody else's warnings are touched.
    """
    array = np.zeros(1, np.uint8)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        torch.from_numpy(array)


def serialize_tensordict(batch: TensorDictBase) -> SerializedTensorDict:
    """Describe a TensorDict by batch size, device and columns.

    Returns:
        Batch size; ``"cpu"`` when a device is declared, else None; and by name a serialised tensor (3 parts)
        or ``("jagged", (ragged dimension, values, offsets))`` or ``("tensordict", ...)``.
    """
    return tuple(batch.batch_size), None if batch.device is None else "cpu", _serialize_columns(columns_of(batch))


def _serialize_columns(items: Mapping[str, OpenColumn]) -> dict[str, tuple[Any, ...]]:
    columns: dict[str, tuple[Any, ...]] = {}
    # Columns that share offsets go on sharing them: pickle writes an array that appears twice once.
    sent: dict[int, tuple[Tensor, SerializedTensor]] = {}
    for name, column in items.items():
        if isinstance(column, OpenDict):
            columns[name] = ("tensordict", ((column.num_rows,), None, _serialize_columns(column.columns)))
        elif isinstance(column, Jagged):
            _, offsets = sent.setdefault(id(column.offsets), (column.offsets, serialize_single_tensor(column.offsets)))
            columns[name] = ("jagged", (column.dim, serialize_single_tensor(column.values), offsets))
        else:
            columns[name] = serialize_single_tensor(cast("Tensor", column))
    return columns


def deserialize_tensordict(arr: Sequence[Any]) -> TensorDict:
    """Rebuild a TensorDict around its bytes, without a copy.

    Args:
        arr: What :func:`serialize_tensordict` returned.

    Raises:
        WireError: The description is not one.
    """
    if len(arr) != 3:
        msg = f"A serialised TensorDict has 3 parts (batch size, device, columns), {len(arr)} were found."
        raise WireError(msg)
    batch_size, device, items = arr
    return TensorDict(closed(_deserialize_columns(items)), batch_size=list(batch_size), device=device)


def _deserialize_columns(items: Mapping[str, Sequence[Any]]) -> dict[str, OpenColumn]:
    columns: dict[str, Any] = {}
    for name, item in items.items():
        if len(item) == 3:
            columns[name] = deserialize_single_tensor(item)
        elif len(item) == 2 and item[0] == "jagged":
            dim, values, offsets = item[1]
            columns[name] = Jagged(deserialize_single_tensor(values), deserialize_single_tensor(offsets), dim)
        elif len(item) == 2 and item[0] == "tensordict":
            (num_rows, *_), _, inner = item[1]
            columns[name] = OpenDict(_deserialize_columns(inner), int(num_rows))
        else:
            msg = f"Column {name!r} is serialised as {len(item)} parts starting with {item[:1]!r}: use 3, or 2 with a kind."
            raise WireError(msg)
    return columns


def reduce_batch(data: BatchBase) -> tuple[Any, ...]:
    """The reduce value of a batch for every pickle protocol."""
    batch = None
    if data._tensors is not None:
        device = None if data._device() is None else "cpu"
        batch = ((len(data),), device, _serialize_columns(data._open_columns()))
    return rebuild_batch, (type(data), batch, data.non_tensor_batch, data.meta_info)


def rebuild_batch(
    cls: type[BatchBase],
    batch: SerializedTensorDict | None,
    non_tensor_batch: dict[str, Any],
    meta_info: dict[str, Any],
) -> BatchBase:
    """Build a batch from what :func:`reduce_batch` sent."""
    tensors = None
    if batch is not None:
        (num_rows,), device, items = batch
        tensors = Unbuilt(_deserialize_columns(items), num_rows, None if device is None else torch.device(device))
    return cls._of(tensors, non_tensor_batch, meta_info)
