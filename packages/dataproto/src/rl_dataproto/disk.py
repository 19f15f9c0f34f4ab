"""Batches on disk, in a file that can be loaded without running code from it.

The file is a short header and a pickle that names only functions which build data: this package's, numpy's and
a few plain types. Loading refuses any other name, so a file from a stranger cannot run code; object columns with
cells of other classes need ``allow`` or ``weights_only=False``.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import torch

from rl_dataproto import wire
from rl_dataproto.base import BatchBase
from rl_dataproto.errors import WireError

_HEADER = b"rl-dataproto batch 1\n"

# What a pickle that was cut off or changed raises, by the documentation of pickle and by trying.
_DAMAGE = (
    *(AttributeError, EOFError, ImportError, LookupError, MemoryError, OverflowError, TypeError, ValueError),
    pickle.UnpicklingError,
)

_SAFE = frozenset(
    {
        "rl_dataproto.wire.rebuild_batch",
        "rl_dataproto.wire.deserialize_single_tensor",
        "rl_dataproto.batch.DataProto",
        "rl_dataproto.handles._rebuild",
        "rl_dataproto.handles.NpyRowSource",
        *(f"numpy.{package}.numeric._frombuffer" for package in ("core", "_core")),
        *(f"numpy.{package}.multiarray.{name}" for package in ("core", "_core") for name in ("_reconstruct", "scalar")),
        *(f"numpy.{name}" for name in ("ndarray", "dtype")),
        *(f"builtins.{name}" for name in ("bytearray", "complex", "dict", "float", "frozenset", "int", "list", "set")),
        *(f"builtins.{name}" for name in ("bool", "bytes", "range", "slice", "str", "tuple")),
        *(f"collections.{name}" for name in ("Counter", "OrderedDict", "defaultdict", "deque")),
        *(f"datetime.{name}" for name in ("date", "datetime", "time", "timedelta", "timezone")),
        *(f"pathlib.{name}" for name in ("Path", "PosixPath", "PurePosixPath", "PureWindowsPath", "WindowsPath")),
        *(f"pathlib._local.{name}" for name in ("Path", "PosixPath", "PurePosixPath", "PureWindowsPath")),
        "_codecs.encode",
        "decimal.Decimal",
        "fractions.Fraction",
        "torch.Size",
        "torch.device",
        "uuid.SafeUUID",
        "uuid.UUID",
    }
)


class _Saver(pickle.Pickler):
    """Writes tensors that stand in cells and metadata the way columns are written, not as torch storages."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is torch.Tensor and obj.layout == torch.strided:
            return wire.deserialize_single_tensor, (wire.serialize_single_tensor(obj),)
        return NotImplemented


class _SafeLoader(pickle.Unpickler):
    """Resolves the names in ``_SAFE`` and those the caller allowed, and no others."""

    def __init__(self, file: IO[bytes], allowed: frozenset[str]) -> None:
        super().__init__(file)
        self._allowed = allowed

    def find_class(self, module_name: str, global_name: str) -> Any:
        name = f"{module_name}.{global_name}"
        if name in self._allowed:
            return super().find_class(module_name, global_name)
        if module_name == "torch" and isinstance(getattr(torch, global_name, None), torch.dtype):
            return getattr(torch, global_name)
        msg = (
            f"The file names {name}, which is not plain data: pass allow=[{global_name}] to load_from_disk if you know "
            "the class, or weights_only=False if you trust the file with your account."
        )
        raise WireError(msg)


def save_to_disk(data: BatchBase, filepath: str | Path) -> None:
    """Write a batch to a file; the file appears under its name only when it is complete.

    Args:
        data: The batch.
        filepath: The file; an existing one is replaced, its folder must exist.
    """
    target = Path(filepath)
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(_HEADER)
            _Saver(file, protocol=5).dump(data)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def load_from_disk(filepath: str | Path, weights_only: bool = True, allow: Iterable[type] = ()) -> Any:
    """Read a batch that :func:`save_to_disk` wrote.

    Args:
        filepath: The file.
        weights_only: Whether only plain data may be loaded. False runs whatever the file says, for files that
            nobody else can have written.
        allow: Classes of cells or metadata that may be loaded as well.

    Raises:
        WireError: Not such a file, an incomplete one, or it names a class that is not allowed.
    """
    with Path(filepath).open("rb") as file:
        if file.read(len(_HEADER)) != _HEADER:
            msg = f"{filepath} does not start like a saved batch: use a file that save_to_disk wrote."
            raise WireError(msg)
        names = frozenset(f"{item.__module__}.{item.__qualname__}" for item in allow)
        try:
            data = _SafeLoader(file, _SAFE | names).load() if weights_only else pickle.load(file)
        except WireError:
            raise
        except _DAMAGE as error:
            msg = f"{filepath} is incomplete or damaged ({error}): write it again."
            raise WireError(msg) from error
    if not isinstance(data, BatchBase):
        msg = f"{filepath} holds a {type(data).__name__}, not a batch."
        raise WireError(msg)
    return data
