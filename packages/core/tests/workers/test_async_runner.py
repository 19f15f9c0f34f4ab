import asyncio
import threading

import pytest
from rl_core.errors import DeadlineError
from rl_core.workers.async_runner import AsyncRunner


@pytest.fixture
def runner():
    runner = AsyncRunner("test-loop")
    yield runner
    runner.close()


async def _thread_name():
    return threading.current_thread().name


def test_coroutines_run_on_one_loop_thread(runner):
    assert {runner.run(_thread_name()) for _ in range(3)} == {"test-loop"}


def test_background_tasks_go_on_between_calls(runner):
    async def start():
        event = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, event.set)
        return event

    async def wait(event):
        await asyncio.wait_for(event.wait(), 5)
        return True

    assert runner.run(wait(runner.run(start())))


def test_an_error_reaches_the_caller(runner):
    async def fail():
        raise ValueError("from inside")

    with pytest.raises(ValueError, match="from inside"):
        runner.run(fail())


def test_a_deadline_names_the_coroutine_and_cancels_it(runner):
    cancelled = threading.Event()

    async def endless():
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(DeadlineError, match=r"endless.*0\.05 s"):
        runner.run(endless(), timeout_s=0.05)
    assert cancelled.wait(5)


def test_a_timeout_inside_is_not_taken_for_ours(runner):
    async def own_timeout():
        raise TimeoutError("the engine's own")

    with pytest.raises(TimeoutError, match="the engine's own"):
        runner.run(own_timeout(), timeout_s=5)


def test_close_cancels_what_runs_and_is_idempotent():
    runner = AsyncRunner("closing")

    async def start():
        return asyncio.get_running_loop().create_task(asyncio.sleep(3600))

    task = runner.run(start())
    runner.close()
    runner.close()
    assert task.cancelled()
