"""Batches that are still being computed."""

from __future__ import annotations

import pickle
import time
from concurrent.futures import Future as RealFuture
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from rl_dataproto import (
    DataProto,
    DataProtoFuture,
    DataProtoTypeError,
    EmptyConcatError,
    Future,
    FutureTimeoutError,
    UnevenChunkError,
    is_future,
    register_future,
    resolve_all,
)


def done(value):
    future = RealFuture()
    future.set_result(value)
    return future


def batch(start, stop, **meta):
    return DataProto.from_dict({"x": torch.arange(start, stop)}, {"uid": [str(i) for i in range(start, stop)]}, meta)


def test_get_joins_the_parts_in_order():
    with ThreadPoolExecutor(2) as pool:
        late = pool.submit(lambda: (time.sleep(0.05), batch(0, 3))[1])
        data = DataProtoFuture.concat([late, done(batch(3, 4))]).get(timeout_s=10)
    assert data.equals(batch(0, 4))


def test_chunks_are_taken_after_joining():
    parts = DataProtoFuture.concat([done(batch(0, 3)), done(batch(3, 6))]).chunk(3)
    assert [part.get().batch["x"].tolist() for part in parts] == [[0, 1], [2, 3], [4, 5]]
    assert parts[1].chunk(2)[1].get().batch["x"].tolist() == [3]
    uneven = DataProtoFuture.concat([done(batch(0, 5))])
    assert [len(part.get()) for part in uneven.chunk(3, allow_uneven=True)] == [2, 2, 1]
    with pytest.raises(UnevenChunkError, match="5 rows"):
        uneven.chunk(3)[0].get()


def test_what_a_worker_takes_travels():
    (part, _) = DataProtoFuture.concat([done(batch(0, 2))]).chunk(2)
    dispatch = pickle.loads(pickle.dumps(part.dispatch_fn))
    collect = pickle.loads(pickle.dumps(part.collect_fn))
    assert dispatch(collect([batch(0, 2)])).batch["x"].tolist() == [0]


def test_tensordicts_are_joined_and_dealt_too():
    held = [batch(0, 2, k=1).to_tensordict(), batch(2, 4, k=1).to_tensordict()]
    whole = DataProtoFuture.concat([done(item) for item in held])
    assert DataProto.from_tensordict(whole.get()).equals(batch(0, 4, k=1))
    assert whole.chunk(2)[1].get()["x"].tolist() == [2, 3]


def test_a_deadline_covers_all_parts_and_names_the_late_one():
    start = time.monotonic()
    with pytest.raises(FutureTimeoutError, match=r"Future 1 of 3 was not ready after 0\.1 s"):
        DataProtoFuture.concat([done(batch(0, 1)), RealFuture(), RealFuture()]).get(timeout_s=0.1)
    assert time.monotonic() - start < 5
    assert issubclass(FutureTimeoutError, TimeoutError)


def test_what_a_worker_raised_is_raised_as_it_is():
    failed = RealFuture()
    failed.set_exception(TimeoutError("inside the worker"))
    with pytest.raises(TimeoutError, match="inside the worker") as caught:
        DataProtoFuture.concat([failed]).get(timeout_s=5)
    assert not isinstance(caught.value, FutureTimeoutError)


def test_no_part():
    with pytest.raises(EmptyConcatError, match="no futures"):
        DataProtoFuture.concat([])
    assert resolve_all([]) == []


class Reference:
    def __init__(self, value):
        self.value = value


class SubReference(Reference):
    pass


def test_a_runtime_registers_its_own_kind_of_future():
    assert not is_future(Reference(1))
    with pytest.raises(DataProtoTypeError, match="Part 0 of 1 is a Reference"):
        DataProtoFuture.concat([Reference(1)]).get()
    waits = []

    def resolve(references, timeout_s):
        waits.append((len(references), timeout_s))
        if timeout_s == 0:
            raise TimeoutError
        return [reference.value for reference in references]

    register_future(Reference, resolve)
    both = DataProtoFuture.concat([Reference(batch(0, 1)), SubReference(batch(1, 2))])
    assert is_future(SubReference(1))
    assert both.get(timeout_s=3).equals(batch(0, 2))
    assert waits == [(2, 3)]
    with pytest.raises(FutureTimeoutError, match="2 futures of type Reference were not all ready after 0 s"):
        both.get(timeout_s=0)


def test_protocol():
    assert isinstance(done(1), Future)
    assert is_future(done(1))
    assert not is_future(batch(0, 1))
