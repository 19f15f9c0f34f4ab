"""Batches on disk: complete files, and nothing but data in them."""

from __future__ import annotations

import datetime
import decimal
import os
import pathlib
import pickle
import uuid

import numpy as np
import pytest
import torch
from rl_dataproto import ColumnHandle, DataProto, DataProtoError, NpyRowSource, WireError


class Custom:
    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return isinstance(other, Custom) and self.value == other.value

    __hash__ = None


class Malicious:
    def __reduce__(self):
        return os.system, ("echo gone wrong",)


def test_plain_data_loads_without_running_code(tmp_path, make_mixed):
    data = make_mixed(6, dtype=torch.bfloat16, device=torch.device("cpu"), size=torch.Size([2]), rows=range(3))
    data.non_tensor_batch["image"] = ColumnHandle(NpyRowSource(pathlib.Path("images.npy")), range(6))
    data.non_tensor_batch["plain"] = np.empty(6, dtype=object)
    data.non_tensor_batch["plain"][:] = [
        {"pixel_values": torch.ones(2, 3, dtype=torch.bfloat16), "text": "Zürich", "raw": b"\x00", "set": {1}},
        datetime.datetime(2030, 1, 2, tzinfo=datetime.UTC),
        decimal.Decimal("1.5"),
        uuid.UUID(int=7),
        np.float32(2.5),
        (1, complex(1, 2), bytearray(b"x"), frozenset({1})),
    ]
    data.non_tensor_batch["day"] = np.arange("2030-01-01", "2030-01-07", dtype="datetime64[D]")
    file = tmp_path / "batch"
    data.save_to_disk(str(file))
    assert DataProto.load_from_disk(str(file)).equals(data)


def test_another_class_needs_to_be_allowed(tmp_path):
    data = DataProto.from_dict(None, {"c": [Custom(1)]})
    data.save_to_disk(tmp_path / "batch")
    with pytest.raises(WireError, match=r"Custom, which is not plain data.*allow=\[Custom\]"):
        DataProto.load_from_disk(tmp_path / "batch")
    assert DataProto.load_from_disk(tmp_path / "batch", allow=[Custom]).equals(data)
    assert DataProto.load_from_disk(tmp_path / "batch", weights_only=False).equals(data)


def test_a_file_cannot_run_code(tmp_path, capfd):
    DataProto.from_dict(None, {"c": [Malicious()]}).save_to_disk(tmp_path / "batch")
    with pytest.raises(WireError, match=r"(posix|nt)\.system"):
        DataProto.load_from_disk(tmp_path / "batch")
    assert "gone wrong" not in capfd.readouterr().out


def test_a_failed_save_leaves_the_old_file(tmp_path):
    file = tmp_path / "batch"
    good = DataProto.from_dict({"x": torch.arange(2)})
    good.save_to_disk(file)
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
        DataProto.from_dict(None, {"c": [lambda: None]}).save_to_disk(file)
    assert DataProto.load_from_disk(file).equals(good)
    assert os.listdir(tmp_path) == ["batch"]


def test_a_damaged_file_is_said_to_be_damaged(tmp_path):
    file = tmp_path / "batch"
    DataProto.from_dict({"x": torch.arange(1000)}).save_to_disk(file)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WireError, match="incomplete or damaged"):
        DataProto.load_from_disk(file)
    for place in range(whole.index(b"\n") + 1, len(whole) - 8000, 7):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            DataProto.load_from_disk(file)  # a changed name or number may still be data
        except DataProtoError as error:
            assert isinstance(error, WireError), place
    file.write_bytes(b"")
    with pytest.raises(WireError, match="does not start like"):
        DataProto.load_from_disk(file)
    file.write_bytes(whole[: whole.index(b"\n") + 1] + pickle.dumps([1]))
    with pytest.raises(WireError, match="holds a list"):
        DataProto.load_from_disk(file)
