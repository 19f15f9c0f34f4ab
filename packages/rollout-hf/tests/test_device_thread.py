from __future__ import annotations

import asyncio
import threading
import time

import pytest
import torch
from rl_rollout_hf.device_thread import BRIEF_S, DeviceThread


def run(check, device="cpu"):
    async def main():
        thread = DeviceThread("test", torch.device(device))
        try:
            await check(thread)
        finally:
            thread.close()

    asyncio.run(main())


def test_functions_run_one_after_another_off_the_loop():
    async def check(thread):
        order = []

        def note(name, seconds):
            time.sleep(seconds)
            order.append((name, threading.current_thread() is threading.main_thread()))

        await asyncio.gather(thread.run(note, "a", 0.02), thread.run(note, "b", 0.0))
        assert order == [("a", False), ("b", False)]

    run(check)


def test_the_loop_goes_on_meanwhile():
    async def check(thread):
        slow = asyncio.ensure_future(thread.run(time.sleep, 0.2))
        started = time.perf_counter()
        await asyncio.sleep(0.01)
        assert time.perf_counter() - started < 0.15
        assert not slow.done()
        await slow

    run(check)


def test_what_has_begun_goes_on_when_its_caller_gives_up():
    async def check(thread):
        done = threading.Event()

        def work():
            time.sleep(0.05)
            done.set()

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(thread.run(work), 0.01)
        assert not done.is_set()
        # Somebody is on the device: even a brief step must wait for its turn.
        thread._last_s = 0.0
        assert await thread.run_repeated(lambda: (done.is_set(), threading.current_thread().name)) == (True, "test_0")

    run(check)


def test_brief_steps_of_a_cpu_run_on_the_loop_and_long_ones_do_not():
    async def check(thread):
        def where(seconds):
            time.sleep(seconds)
            return threading.current_thread() is threading.main_thread()

        assert not await thread.run_repeated(where, 0.0)  # nothing is known yet
        thread._last_s = BRIEF_S / 2
        assert await thread.run_repeated(where, 3 * BRIEF_S)
        assert not await thread.run_repeated(where, 0.0)

    run(check)


def test_errors_come_back():
    async def check(thread):
        with pytest.raises(ZeroDivisionError):
            await thread.run(lambda: 1 / 0)
        assert await thread.run(int) == 0

    run(check)
