from __future__ import annotations

import asyncio

import pytest
from rl_core.errors import RlError
from rl_testing.contracts.replica import ask
from rl_testing.fakes.serving import StepLoop, version_spans


class Counting:
    """Counts up from 0, ends with max_tokens, and fails where a prompt says so."""

    def __init__(self):
        self.steps = []

    def __call__(self, item):
        if item.request.prompt_ids[0] == 13:
            msg = "unlucky"
            raise ValueError(msg)
        self.steps.append((item.request.request_id, len(item.tokens)))
        item.versions.append(1)
        item.tokens.append(len(item.tokens))
        return "length" if len(item.tokens) >= item.request.sampling.max_tokens else None


def play(script, max_num_seqs=8):
    advance = Counting()

    async def run():
        loop = StepLoop(advance, max_num_seqs)
        try:
            return await script(loop)
        finally:
            await loop.close()

    return asyncio.run(run()), advance.steps


def together(loop, *requests):
    return asyncio.gather(*(loop.serve(request) for request in requests), return_exceptions=True)


def test_requests_advance_together_and_enter_as_others_end():
    requests = [ask((2,), name=name, max_tokens=count) for name, count in (("a", 2), ("b", 1), ("c", 1))]
    outputs, steps = play(lambda loop: together(loop, *requests), max_num_seqs=2)
    assert [output.token_ids for output in outputs] == [(0, 1), (0,), (0,)]
    assert steps == [("a", 0), ("b", 0), ("a", 1), ("c", 0)]


def test_an_error_ends_its_own_request():
    good, bad = ask((2,), name="good", max_tokens=2), ask((13,), name="bad")
    (output, error), _ = play(lambda loop: together(loop, good, bad))
    assert output.token_ids == (0, 1)
    assert isinstance(error, ValueError)


def test_request_ids_in_flight_must_differ():
    (first, second), _ = play(lambda loop: together(loop, ask((2,), max_tokens=2), ask((3,), max_tokens=2)))
    assert first.token_ids == (0, 1)
    assert isinstance(second, RlError)
    assert "must differ" in str(second)


def test_abort_answers_with_what_is_there():
    async def script(loop):
        loop.pause()
        waiting = [asyncio.ensure_future(loop.serve(ask((2,), name=name, max_tokens=3))) for name in "ab"]
        await asyncio.sleep(0)
        loop.abort(["a", "unknown"])
        loop.resume()
        return await asyncio.gather(*waiting)

    (aborted, whole), _ = play(script)
    assert (aborted.token_ids, aborted.finish_reason, aborted.versions) == ((), "abort", ())
    assert (whole.token_ids, whole.finish_reason) == ((0, 1, 2), "length")


def test_a_paused_loop_draws_nothing():
    async def script(loop):
        loop.pause()
        waiting = asyncio.ensure_future(loop.serve(ask((2,), max_tokens=1)))
        for _ in range(20):
            await asyncio.sleep(0)
        was_done = waiting.done()
        loop.resume()
        return was_done, (await waiting).token_ids

    assert play(script)[0] == (False, (0,))


def test_a_cancelled_caller_leaves_no_trace():
    async def script(loop):
        waiting = asyncio.ensure_future(loop.serve(ask((2,), max_tokens=10_000)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return (await loop.serve(ask((2,), max_tokens=1))).token_ids

    assert play(script)[0] == (0,)


def test_a_closed_loop_refuses():
    async def script(loop):
        await loop.close()
        with pytest.raises(RlError, match="closed"):
            await loop.serve(ask((2,)))

    play(script)


@pytest.mark.parametrize(
    ("versions", "spans"), [([], ()), ([3], ((3, 1),)), ([1, 1, 2, 2, 2, 1], ((1, 2), (2, 3), (1, 1)))]
)
def test_version_spans(versions, spans):
    assert version_spans(versions) == spans
