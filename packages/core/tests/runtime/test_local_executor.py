import asyncio
import threading
import time

import pytest
import torch
from rl_core.errors import DeadlineError
from rl_core.runtime.local_executor import InlineExecutor, LocalFuture, ThreadExecutor
from rl_core.single_controller.base.progress import current_progress, progress


@pytest.fixture(params=["inline", "thread"])
def executor(request):
    made = InlineExecutor("worker", 5.0) if request.param == "inline" else ThreadExecutor("worker")
    yield made
    assert made.stop(2.0)


def start(executor, job, failed=lambda error: error, deadline_s=5.0):
    future = LocalFuture("update of rank 1", 1, deadline_s)
    executor.submit(job, future, failed)
    return future


def run(executor, job):
    return start(executor, job).result()


def test_inline_is_the_callers_thread_and_a_thread_is_one_for_all_calls():
    inline, thread = InlineExecutor("a", 5.0), ThreadExecutor("b")
    assert run(inline, threading.current_thread) is threading.current_thread()
    first = run(thread, threading.current_thread)
    assert first is not threading.current_thread()
    assert run(thread, threading.current_thread) is first
    assert first.name == "b"
    assert first.daemon
    assert run(thread, lambda: thread.is_current)
    assert not thread.is_current
    assert inline.stop(1.0)
    assert thread.stop(1.0)
    assert not first.is_alive()


def test_calls_run_in_order(executor):
    seen = []
    futures = [start(executor, lambda n=n: seen.append(n)) for n in range(20)]
    [future.result() for future in futures]
    assert seen == list(range(20))


def test_coroutines_share_a_loop_that_lives_on(executor):
    async def loop():
        await asyncio.sleep(0)
        return asyncio.get_running_loop()

    first = run(executor, loop)
    assert run(executor, loop) is first
    assert not first.is_closed()
    executor.stop(2.0)
    assert first.is_closed()


def test_background_tasks_survive_from_call_to_call(executor):
    box = {}

    async def begin():
        box["event"] = asyncio.Event()
        box["task"] = asyncio.create_task(box["event"].wait())

    async def end():
        box["event"].set()
        return await box["task"]

    run(executor, begin)
    assert run(executor, end) is True


def test_a_plain_method_may_run_a_loop_of_its_own(executor):
    async def three():
        return 3

    assert run(executor, lambda: asyncio.run(three())) == 3


def test_inline_coroutines_run_inside_a_running_loop_too():
    inline = InlineExecutor("worker", 5.0)

    async def method():
        await asyncio.sleep(0)
        return "done"

    async def notebook():
        return run(inline, method)

    assert asyncio.run(notebook()) == "done"
    inline.stop(1.0)


def test_inline_coroutines_see_the_callers_context():
    inline = InlineExecutor("worker", 5.0)

    async def place():
        return current_progress().step

    assert run(inline, place) is None
    with progress(step=3):
        assert run(inline, place) == 3
    inline.stop(1.0)


def test_an_error_is_translated_before_it_is_seen(executor):
    def job():
        raise ValueError("bad")

    future = start(executor, job, failed=lambda error: RuntimeError(f"seen {error}"))
    with pytest.raises(RuntimeError, match="seen bad"):
        future.result()


def test_a_timeout_of_the_call_itself_is_not_ours(executor):
    async def method():
        raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        run(executor, method)


def test_gradients_are_on_whatever_the_caller_switched_off(executor):
    with torch.no_grad():
        assert run(executor, torch.is_grad_enabled)
    with torch.inference_mode():
        assert run(executor, lambda: (torch.ones(1, requires_grad=True) * 2).requires_grad)
        assert torch.is_inference_mode_enabled()


def test_gradients_are_on_again_in_the_next_call(executor):
    run(executor, lambda: torch.set_grad_enabled(False))
    assert run(executor, torch.is_grad_enabled)
    assert torch.is_grad_enabled()


def test_a_future_has_the_groups_deadline():
    thread = ThreadExecutor("worker")
    release = threading.Event()
    future = start(thread, lambda: release.wait(5.0), deadline_s=0.05)
    with pytest.raises(DeadlineError, match=r"update of rank 1 did not finish within 0\.05 s"):
        future.result()
    with pytest.raises(DeadlineError, match=r"within 0\.01 s"):
        future.result(0.01)
    assert not thread.stop(0.01)
    release.set()
    assert future.result(2.0) is True
    assert thread.stop(2.0)


def test_an_inline_coroutine_is_stopped_at_the_deadline():
    inline = InlineExecutor("worker", 0.05)
    cancelled = []

    async def method():
        try:
            await asyncio.sleep(30.0)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    started = time.monotonic()
    with pytest.raises(DeadlineError, match=r"update of rank 1 did not finish within 0\.05 s"):
        run(inline, method)
    assert time.monotonic() - started < 2.0
    assert cancelled == [True]
    inline.stop(1.0)


def test_interrupting_an_inline_call_interrupts_the_caller():
    inline = InlineExecutor("worker", 5.0)

    def job():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(inline, job)
    inline.stop(1.0)


def test_a_finished_call_keeps_nothing_alive():
    import gc
    import weakref

    class Batch:
        pass

    thread, batch = ThreadExecutor("worker"), Batch()
    watch = weakref.ref(batch)
    run(thread, lambda kept=batch: None)
    run(thread, lambda: None)
    del batch
    gc.collect()
    assert watch() is None
    assert thread.stop(1.0)
