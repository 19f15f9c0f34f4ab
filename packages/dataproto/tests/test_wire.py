"""Pickles of a batch: in the stream, out of band, read-only."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from rl_dataproto import (
    ColumnError,
    DataProto,
    WireError,
    deserialize_single_tensor,
    deserialize_tensordict,
    jagged_from_rows,
    serialize_single_tensor,
    serialize_tensordict,
)
from tensordict import TensorDict

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_round_trip_of_every_kind_of_column(make_mixed, protocol):
    data = make_mixed(6, stop=[1], metrics={"loss": 1.0})
    back = pickle.loads(pickle.dumps(data, protocol=protocol))
    assert back.equals(data)
    back.check_consistency()
    assert type(back) is DataProto


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_travels_as_bytes(dtype):
    tensor = (torch.arange(24) % 3).reshape(2, 3, 4).to(dtype)
    for form in (tensor, tensor.transpose(0, 2), tensor[:, 1:], tensor[:0], tensor[0, 0, 0]):
        name, shape, data = serialize_single_tensor(form)
        assert (name, shape, data.dtype) == (str(dtype)[6:], tuple(form.shape), np.uint8)
        back = deserialize_single_tensor((name, shape, data))
        assert back.dtype == dtype
        assert back.shape == form.shape
        assert torch.equal(back.to(torch.complex128), form.to(torch.complex128))
        # Any buffer will do, as verl's callers pass a memoryview.
        assert torch.equal(
            deserialize_single_tensor((name, shape, bytearray(data))).to(torch.complex128), form.to(torch.complex128)
        )


def test_lazy_bits_and_gradients_stay_behind():
    conj = torch.tensor([1 + 2j]).conj()
    assert deserialize_single_tensor(serialize_single_tensor(conj)).tolist() == [1 - 2j]
    data = DataProto.from_dict({"x": torch.ones(2, requires_grad=True) * 2})
    back = pickle.loads(pickle.dumps(data))
    assert back.batch["x"].tolist() == [2, 2]
    assert not back.batch["x"].requires_grad


def test_sparse_tensors_are_refused():
    with pytest.raises(ColumnError, match="sparse_coo"):
        serialize_single_tensor(torch.eye(2).to_sparse())


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (("float32", (2,)), "2 were found"),
        (("float33", (2,), np.zeros(8, np.uint8)), "'float33'"),
        ((3, (2,), np.zeros(8, np.uint8)), "dtype 3"),
        (("float32", (3,), np.zeros(8, np.uint8)), "8 bytes"),
    ],
)
def test_a_broken_tensor_is_refused(broken, words):
    with pytest.raises(WireError, match=words):
        deserialize_single_tensor(broken)


def test_a_broken_tensordict_is_refused():
    good = serialize_tensordict(TensorDict({"x": torch.zeros(1)}, [1]))
    assert deserialize_tensordict(good)["x"].tolist() == [0]
    with pytest.raises(WireError, match="2 were found"):
        deserialize_tensordict(good[:2])
    with pytest.raises(ValueError, match="'x' is serialised as 4 parts"):
        deserialize_tensordict((good[0], good[1], {"x": (1, 2, 3, 4)}))


def out_of_band(value):
    buffers = []
    return pickle.dumps(value, protocol=5, buffer_callback=buffers.append), buffers


def test_columns_leave_the_stream_and_come_back_without_a_copy():
    data = DataProto.from_dict(
        {
            "ids": torch.arange(40_000).reshape(100, 400),
            "half": torch.ones(100, 400, dtype=torch.bfloat16),
            "tokens": jagged_from_rows([torch.arange(n) for n in range(100)]),
        },
        {"score": np.arange(100.0), "uid": [f"u{n}" for n in range(100)]},
    )
    stream, buffers = out_of_band(data)
    assert len(stream) < 4_000
    addresses = {np.frombuffer(buffer, np.uint8).ctypes.data for buffer in buffers}
    back = pickle.loads(stream, buffers=buffers)
    assert back.equals(data)
    for column in (data.batch["ids"], data.batch["half"], data.batch["tokens"].values(), back.batch["ids"]):
        assert column.data_ptr() in addresses


def test_a_view_sends_its_own_rows_only():
    data = DataProto.from_dict(
        {"x": torch.zeros(1000, 100), "j": jagged_from_rows([torch.zeros(100)] * 1000)}, {"n": np.zeros((1000, 100))}
    )
    assert len(pickle.dumps(data[:2])) < 8_000
    assert len(pickle.dumps(data[::500])) < 8_000


def test_columns_of_equal_lengths_share_offsets_on_arrival():
    rows = [torch.arange(n) for n in (2, 0, 3)]
    data = DataProto.from_dict({"a": jagged_from_rows(rows), "b": jagged_from_rows(rows)})
    stream, buffers = out_of_band(data)
    assert len(buffers) == 3
    back = pickle.loads(stream, buffers=buffers)
    assert (back.batch["a"] + back.batch["b"]).values().tolist() == [0, 2, 0, 2, 4]


@pytest.mark.heavy
def test_read_only_memory_arrives_without_a_warning():
    # In a process of its own, because torch warns once a process.
    code = """
import pickle, warnings, torch
warnings.simplefilter("error")
from rl_dataproto import DataProto
buffers = []
stream = pickle.dumps(DataProto.from_dict({"x": torch.arange(3)}), protocol=5, buffer_callback=buffers.append)
back = pickle.loads(stream, buffers=[bytes(buffer) for buffer in buffers])
assert back.batch["x"].tolist() == [0, 1, 2]
twin = back.clone()
twin.batch["x"][0] = 7
assert back.batch["x"].tolist() == [0, 1, 2]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_other_warnings_are_left_alone():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        deserialize_single_tensor(("uint8", (1,), b"a"))
        warnings.warn("still heard", UserWarning, stacklevel=1)
    assert [str(item.message) for item in caught] == ["still heard"]


def test_a_declared_device_arrives_as_the_cpu():
    data = DataProto.from_dict({"x": torch.zeros(1)}).to("cpu")
    assert pickle.loads(pickle.dumps(data)).batch.device == torch.device("cpu")
    assert pickle.loads(pickle.dumps(DataProto.from_dict({"x": torch.zeros(1)}))).batch.device is None


EMPTY = {
    "a": (lambda: DataProto(TensorDict({}, batch_size=[0])), 0),
    "b": (lambda: DataProto.from_dict(None, {"s": ["x", "y", "z"]}), 3),
    "c": (lambda: DataProto(meta_info={"metrics": {}}), 0),
    "d": (lambda: DataProto.from_dict({"x": torch.zeros(0, 16, dtype=torch.int64)}), 0),
}


def check_empty(case, back):
    data, rows = EMPTY[case][0](), EMPTY[case][1]
    assert len(back) == rows
    assert back.equals(data)
    assert back.meta_info == data.meta_info
    assert (back.batch is None) == (data.batch is None)
    if case == "d":
        assert back.batch["x"].shape == (0, 16)
        assert back.batch["x"].dtype == torch.int64


@pytest.mark.parametrize("case", EMPTY)
def test_B08_batch_without_rows_or_tensors_survives_pickle(case):
    check_empty(case, pickle.loads(pickle.dumps(EMPTY[case][0]())))
    stream, buffers = out_of_band(EMPTY[case][0]())
    check_empty(case, pickle.loads(stream, buffers=buffers))


@pytest.fixture(scope="module")
def ray():
    import ray

    ray.init(address="local", num_cpus=1, include_dashboard=False, object_store_memory=128 << 20, log_to_driver=False)
    yield ray
    ray.shutdown()


@pytest.mark.heavy
class TestRay:
    @pytest.mark.parametrize("case", EMPTY)
    def test_B08_batch_without_rows_or_tensors_survives_the_object_store(self, ray, case):
        check_empty(case, ray.get(ray.put(EMPTY[case][0]())))

    def test_every_kind_of_column_survives_the_object_store(self, ray, make_mixed):
        data = make_mixed(6, metrics={"loss": 1.0})
        assert ray.get(ray.put(data)).equals(data)

    def test_two_readers_map_the_same_memory(self, ray):
        data = DataProto.from_dict(
            {"x": torch.arange(1 << 18), "h": torch.ones(1 << 18, dtype=torch.bfloat16)}, {"n": np.zeros(1 << 18)}
        )
        stored = ray.put(data)
        first, second = ray.get(stored), ray.get(stored)
        for name in ("x", "h"):
            assert first.batch[name].data_ptr() == second.batch[name].data_ptr()
        assert not first.non_tensor_batch["n"].flags.writeable
        assert first.equals(data)
