"""One face for everything that is dealt and joined."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
import torch
from rl_dataproto import BatchData, DataProto, DataProtoFuture, DataProtoTypeError, EmptyConcatError, UnevenChunkError
from tensordict import TensorDict


def batch():
    return DataProto.from_dict({"x": torch.arange(4)}, {"uid": list("abcd")})


def test_what_can_be_dealt():
    future = DataProtoFuture.concat([Future()])
    assert all(BatchData(data).is_chunkable() for data in (batch(), future, TensorDict({}, [4])))
    assert not any(BatchData(data).is_chunkable() for data in ([batch()], torch.arange(4), None))
    assert [part.batch["x"].tolist() for part in BatchData(batch()).chunk(2)] == [[0, 1], [2, 3]]
    assert [part["x"].tolist() for part in BatchData(TensorDict({"x": torch.arange(4)}, [4])).chunk(2)] == [
        [0, 1],
        [2, 3],
    ]
    assert len(BatchData(future).chunk(3)) == 3
    with pytest.raises(UnevenChunkError, match="4 rows"):
        BatchData(TensorDict({"x": torch.arange(4)}, [4])).chunk(3)
    assert [len(part) for part in BatchData(batch()).chunk(3, allow_uneven=True)] == [2, 1, 1]
    with pytest.raises(DataProtoTypeError, match="A list was to be dealt to 2 workers"):
        BatchData([1, 2]).chunk(2)


def test_what_can_be_joined():
    assert BatchData(batch().chunk(2)).concat().equals(batch())
    assert BatchData(tuple(BatchData(batch().to_tensordict()).chunk(2))).concat()["x"].tolist() == [0, 1, 2, 3]
    future = Future()
    future.set_result(batch())
    joined = BatchData([future]).concat()
    assert isinstance(joined, DataProtoFuture)
    assert joined.get().equals(batch())
    assert not any(BatchData(data).is_concatable() for data in ([], batch(), [1], [batch(), future]))
    with pytest.raises(EmptyConcatError, match="empty list"):
        BatchData([]).concat()
    with pytest.raises(DataProtoTypeError, match=r"\['DataProto', 'int'\]"):
        BatchData([batch(), 1]).concat()
    with pytest.raises(DataProtoTypeError, match="3 was to be joined"):
        BatchData(3).concat()
