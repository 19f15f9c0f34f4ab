import pickle

from rl_core.runtime.ray.future import RayFuture


def test_how_the_maker_waits_stays_behind_when_the_future_travels():
    future = RayFuture(b"ref", "train of worker group 'actor' on rank 0 of 1", 9.0, lambda future, timeout: timeout)
    assert future.result(3.0) == 3.0

    there = pickle.loads(pickle.dumps(future))
    assert (there.ref, there.label) == (b"ref", future.label)
    assert there._wait is None
