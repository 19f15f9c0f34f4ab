"""Real processes: each test starts its own, and leaves none."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from rl_core.contracts.reward import RewardFailure
from rl_core.errors import ConfigError, RlError
from rl_core.scoring import guard
from rl_core.scoring.pool import ScorePool

pytestmark = pytest.mark.heavy


@pytest.fixture
def make_pool():
    pools = []

    def make(num_workers=2, timeout_s=20.0, memory_mb=None, **options):
        pools.append(ScorePool(num_workers=num_workers, timeout_s=timeout_s, memory_mb=memory_mb, **options))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()
        assert list(guard.marked(pool._name)) == []


def run(pool, function, values, num_rows=0):
    key = pool.add_function(function)
    jobs = pool.submit([(key, {"x": value}, num_rows) for value in values])
    return [job.future.result(60)[0] for job in jobs]


def scores(results):
    return [result.score for result in results]


def test_many_cheap_calls_come_back_in_order_from_one_process(make_pool):
    pool = make_pool(num_workers=1)
    assert scores(run(pool, lambda x: x, range(500))) == list(range(500))
    assert len(pool.worker_ids()) == 1


def test_a_queue_that_one_process_does_not_empty_starts_the_others(make_pool):
    pool = make_pool(num_workers=3)

    def who(x):
        time.sleep(0.2)
        return {"score": 1, "pid": os.getpid()}

    results = run(pool, who, range(12))
    assert len({result.extra["pid"] for result in results}) == 3


def test_plain_functions_run_in_a_main_thread_without_a_loop(make_pool):
    def alarm(x):
        import asyncio

        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(0)
        return asyncio.run(asyncio.sleep(0, result=float(threading.current_thread() is threading.main_thread())))

    assert scores(run(make_pool(), alarm, range(2))) == [1.0, 1.0]


def test_coroutines_share_a_process_up_to_their_number(make_pool):
    async def together(x):
        import asyncio

        together.now = getattr(together, "now", 0) + 1
        together.most = max(getattr(together, "most", 0), together.now)
        await asyncio.sleep(0.1)
        together.now -= 1
        return together.most

    results = scores(run(make_pool(num_workers=1, max_concurrent=5), together, range(20)))
    assert max(results) == 5


def test_a_coroutine_is_cancelled_at_its_deadline_and_the_others_go_on(make_pool):
    async def slow(x):
        import asyncio

        await asyncio.sleep(30 if x == 1 else 0.01)
        return x

    pool = make_pool(num_workers=1, timeout_s=0.5)
    results = run(pool, slow, range(3))
    assert scores(results) == [0.0, None, 2.0]
    assert results[1].failure is RewardFailure.TIMEOUT
    assert len(pool.worker_ids()) == 1


def test_one_that_blocks_the_loop_takes_no_other_with_it(make_pool):
    async def block(x):
        import asyncio

        if x == 1:
            time.sleep(60)
        await asyncio.sleep(0)
        return x

    results = run(make_pool(num_workers=1, timeout_s=0.5), block, range(4))
    assert scores(results) == [0.0, None, 2.0, 3.0]


def test_a_call_for_many_rows(make_pool):
    pool = make_pool()
    key = pool.add_function(lambda x: [1.0, None, {"score": 3}][: len(x)])
    (job,) = pool.submit([(key, {"x": [1, 2, 3]}, 3)])
    assert scores(job.future.result(60)) == [1.0, None, 3.0]
    (job,) = pool.submit([(key, {"x": [1, 2]}, 3)])
    results = job.future.result(60)
    assert [result.failure for result in results] == [RewardFailure.INVALID] * 3
    assert "was given 3 rows and returned 2 entries" in results[0].error


def test_a_function_that_does_not_load_says_why(make_pool):
    class Broken:
        def resolve(self):
            import no_such_module_anywhere

            return no_such_module_anywhere

    results = run(make_pool(), Broken(), range(2))
    assert {result.error for result in results} == {
        "the reward function could not be loaded: ModuleNotFoundError: No module named 'no_such_module_anywhere'"
    }


def test_what_cannot_be_sent_is_refused_or_missing(make_pool):
    pool, lock = make_pool(), threading.Lock()
    with pytest.raises(ConfigError, match=r"cannot be sent to a process: TypeError.*Define it at the top of a module"):
        pool.add_function(lambda x: lock)
    results = run(pool, lambda x: 1.0, [lock, 1])
    assert scores(results) == [None, 1.0]
    assert "arguments cannot be sent" in results[0].error


def test_large_texts_go_both_ways_without_blocking(make_pool):
    results = run(make_pool(num_workers=1), lambda x: {"score": len(x), "text": x}, ["a" * (3 << 20)] * 4)
    assert scores(results) == [float(3 << 20)] * 4


def test_scoring_works_from_any_thread(make_pool):
    pool = make_pool()
    found = []
    key = pool.add_function(lambda x: x)
    threads = [
        threading.Thread(
            target=lambda: found.extend(
                job.future.result(60)[0].score for job in pool.submit([(key, {"x": 1}, 0)] * 20)
            )
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [1.0] * 80


def test_a_closed_pool_has_no_process_and_takes_no_call(make_pool):
    pool = make_pool(num_workers=1)
    key = pool.add_function(lambda x: time.sleep(60))
    jobs = pool.submit([(key, {"x": 0}, 0)] * 3)
    while not pool.worker_ids():
        time.sleep(0.01)
    started = time.monotonic()
    pool.close()
    assert time.monotonic() - started < 5
    assert [job.future.result(0)[0].failure for job in jobs] == [RewardFailure.CRASHED] * 3
    with pytest.raises(RlError, match="closed"):
        pool.submit([(key, {"x": 0}, 0)])


OWNER = """
import os, signal, subprocess, sys, time
from rl_core.scoring.pool import ScorePool

signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell's background jobs start ignores it

def hang(x):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    while True:
        pass

pool = ScorePool(num_workers=2, timeout_s=600)
pool.submit([(pool.add_function(hang), {"x": 0}, 0)] * 2)
print(pool._name, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_no_process_outlives_its_owner(end):
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        name = owner.stdout.readline().strip()
        ends = time.monotonic() + 60
        while len(list(guard.marked(name))) < 3 and time.monotonic() < ends:
            time.sleep(0.05)
        assert len(list(guard.marked(name))) >= 3
        owner.send_signal(end)
        owner.wait(30)
        ends = time.monotonic() + 20
        while list(guard.marked(name)) and time.monotonic() < ends:
            time.sleep(0.05)
        assert list(guard.marked(name)) == []
    finally:
        owner.kill()
        owner.stdout.close()


def test_the_end_of_a_call_is_the_end_of_all_that_it_has_started(make_pool, tmp_path):
    """Also of what has moved to a session of its own, and at once, not when the pool is closed."""
    noted = tmp_path / "pid"

    def leave(x):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
        noted.write_text(str(child.pid))
        time.sleep(60)

    pool = make_pool(timeout_s=2.0)
    assert run(pool, leave, [0])[0].failure is RewardFailure.TIMEOUT
    assert int(noted.read_text()) not in list(guard.marked(pool._name))


def test_the_clock_of_the_first_call_starts_when_its_function_is_there(make_pool):
    class Slow:
        def __reduce__(self):
            return time.sleep, (2.5,)

    def wait(x, held=Slow()):  # noqa: B008 - what takes long to load is part of the function
        time.sleep(0.5)
        return x

    assert scores(run(make_pool(timeout_s=1.5), wait, [5])) == [5.0]


def test_an_answer_with_another_number_of_results_is_none(make_pool):
    def forge(x):
        from rl_core.scoring.frames import NUMBER, Kind, frame

        if x == 1:
            two = NUMBER.pack(1) + b"[[1.0,{},null,null],[1.0,{},null,null]]"
            os.write(int(sys.argv[-1]), frame(Kind.ANSWER, two))
        return x

    results = run(make_pool(num_workers=1), forge, range(3))
    assert scores(results) == [0.0, None, 2.0]
    assert results[1].failure is RewardFailure.CRASHED
    assert "2 results of 1" in results[1].error


def test_an_allocation_beyond_the_limit_raises_where_it_can_be_caught(make_pool):
    def take(x):
        try:
            return len(bytearray(x << 20))
        except MemoryError:
            return -1

    # 300 MiB is less than what the pool's own watch ends a process for.
    assert scores(run(make_pool(num_workers=1, memory_mb=200), take, [100, 300, 1])) == [100 << 20, -1.0, 1 << 20]
