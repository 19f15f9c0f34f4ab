"""The engine as a whole, on tiny real models, beside transformers itself."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
import torch
from rl_core.contracts.rollout import RolloutState
from rl_core.errors import ConfigError, RlError, WeightSyncError
from rl_rollout_hf.device_thread import DeviceThread
from rl_rollout_hf.runner import Runner
from rl_testing.contracts.replica import ask

PROMPTS = ((5, 3, 9, 4), (7,), (2, 8, 6), tuple(range(10, 40)), (11, 10, 12, 13, 14, 15), (9, 8), (1, 1, 1, 1, 1))


def crowd(**sampling):
    return [ask(prompt, name=f"r{row}", seed=row, **sampling) for row, prompt in enumerate(PROMPTS)]


def bits(outputs):
    return [(output.token_ids, output.log_probs) for output in outputs]


def greedy_by_generate(policy, prompt, num_tokens):
    ids = torch.tensor([prompt])
    found = policy.model(1).generate(ids, max_new_tokens=num_tokens, do_sample=False, eos_token_id=None, pad_token_id=0)
    return tuple(found[0, len(prompt) :].tolist())


@pytest.mark.parametrize("model_type", ["qwen2", "llama", "gpt2", "qwen3"])
def test_greedy_tokens_are_those_of_generate(serve, make_policy, model_type):
    policy = make_policy(model_type)
    # Two rows for seven requests of different lengths: rows are left and taken all the time.
    replica = serve(policy, max_num_seqs=2)
    requests = [
        ask(prompt, name=str(row), temperature=0.0, max_tokens=6 + 3 * row, ignore_eos=True)
        for row, prompt in enumerate(PROMPTS)
    ]
    for request, output in zip(requests, replica.outputs(*requests), strict=True):
        assert output.token_ids == greedy_by_generate(policy, request.prompt_ids, request.sampling.max_tokens)
        assert output.log_probs == (0.0,) * len(output.token_ids)
    alone = [replica.output(request).token_ids for request in requests]
    assert alone == [output.token_ids for output in replica.outputs(*requests)]


@pytest.mark.parametrize("model_type", ["qwen2", "llama", "gpt2"])
def test_log_probs_are_those_of_a_plain_pass(serve, make_policy, model_type):
    policy = make_policy(model_type)
    replica = serve(policy, max_num_seqs=3)
    requests = crowd(temperature=0.7, max_tokens=20, ignore_eos=True)
    for request, output in zip(requests, replica.outputs(*requests), strict=True):
        logits = policy.logits(1, (*request.prompt_ids, *output.token_ids))[len(request.prompt_ids) - 1 : -1]
        table = torch.log_softmax(logits / 0.7, dim=-1)
        expected = table.gather(1, torch.tensor(output.token_ids)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(output.log_probs), expected, rtol=0, atol=2e-5)


def test_the_same_batch_repeats_to_the_bit(serve):
    requests = crowd(max_tokens=40, ignore_eos=True)
    replica = serve(max_num_seqs=3)
    first = bits(replica.outputs(*requests))
    replica.outputs(*crowd(max_tokens=100))  # whatever came before leaves no trace
    assert bits(replica.outputs(*requests)) == first
    replica.on_all(lambda engine: engine.sleep(1))
    replica.on_all(lambda engine: engine.wake(frozenset(RolloutState)))
    assert bits(replica.outputs(*requests)) == first
    assert bits(serve(max_num_seqs=3).outputs(*requests)) == first


def test_another_batch_draws_the_same_tokens_with_log_probs_that_differ_by_rounding(serve):
    requests = crowd(max_tokens=40, ignore_eos=True)
    reference = serve(max_num_seqs=7).outputs(*requests)
    for options in ({"max_num_seqs": 1}, {"max_num_seqs": 3}, {"max_num_batched_tokens": 8}):
        for output, expected in zip(serve(**options).outputs(*requests), reference, strict=True):
            assert output.token_ids == expected.token_ids
            assert output.log_probs == pytest.approx(expected.log_probs, abs=2e-5)


def test_a_full_cache_sends_sequences_back_without_changing_them(serve, engine_of):
    requests = crowd(max_tokens=150, ignore_eos=True)
    expected = serve().outputs(*requests)
    # 512 bytes a token: 520 tokens, which seven sequences of up to 180 tokens outgrow.
    replica = serve(own={"cache_gib": 520 * 512 / 2**30})
    device = engine_of(replica)._parts.device
    assert device.budget_tokens == 520
    read = []
    step = device.step
    device.step = lambda plan: (read.extend(plan.contexts), step(plan))[1]
    outputs = replica.outputs(*requests)
    assert device.cache.rows * device.cache.length <= 520
    assert max(map(len, read)) > 40  # somebody was read again in the middle of the response
    assert [output.token_ids for output in outputs] == [output.token_ids for output in expected]
    for output, alone in zip(outputs, expected, strict=True):
        assert output.log_probs == pytest.approx(alone.log_probs, abs=2e-5)


def test_samples_of_one_prompt_read_it_once(serve, monkeypatch):
    filled = []
    fill = Runner.fill
    monkeypatch.setattr(
        Runner, "fill", lambda self, cache, batch: (filled.append(batch.prompts), fill(self, cache, batch))[1]
    )
    replica = serve(version=None)
    replica.sync(1)
    filled.clear()
    requests = [ask(PROMPTS[3], name=str(seed), seed=seed, max_tokens=5) for seed in range(6)]
    outputs = replica.outputs(*requests)
    assert filled == [(PROMPTS[3][:-1],)]
    assert len({output.token_ids for output in outputs}) > 1
    assert outputs[4].token_ids == replica.output(requests[4]).token_ids


def test_every_end_of_sequence_counts(serve):
    free = serve().output(ask(PROMPTS[0], seed=2, max_tokens=30, ignore_eos=True)).token_ids
    first, second = free[9], free[5]
    assert free.index(first) == 9
    assert free.index(second) == 5
    output = serve(eos_token_ids=(first, second)).output(ask(PROMPTS[0], seed=2, max_tokens=30))
    assert (output.token_ids, output.finish_reason) == (free[:6], "stop")
    assert serve(eos_token_ids=(first, 0)).output(ask(PROMPTS[0], seed=2, max_tokens=30)).token_ids == free[:10]


def test_stop_strings_are_found_in_the_text_of_the_models_tokenizer(serve, make_policy):
    policy = make_policy("qwen2", vocab_size=300)  # bytes, so that characters have several tokens
    replica = serve(policy)
    free = replica.output(ask(PROMPTS[3], seed=5, max_tokens=60, ignore_eos=True))
    text = policy.decode(free.token_ids)
    stop = text[20:24]
    output = replica.output(ask(PROMPTS[3], seed=5, max_tokens=60, stop=("never there", stop)))
    assert output.finish_reason == "stop"
    assert stop in policy.decode(output.token_ids)
    assert stop not in policy.decode(output.token_ids[:-1])
    assert output.token_ids == free.token_ids[: len(output.token_ids)]


@pytest.mark.parametrize("model_type", ["qwen2", "llama", "gpt2"])
def test_a_folder_without_tokenizer_serves_ids(serve, make_policy, monkeypatch, model_type):
    policy = make_policy(model_type)
    monkeypatch.setattr(policy, "save", lambda folder, eos, save=policy.save: _without_tokenizer(save(folder, eos)))
    replica = serve(policy)
    assert len(replica.output(ask(PROMPTS[0], max_tokens=3, ignore_eos=True)).token_ids) == 3
    with pytest.raises(ConfigError, match="tokenizer"):
        replica.output(ask(PROMPTS[0], max_tokens=3, stop=("a",)))


def _without_tokenizer(folder):
    for path in folder.glob("tokenizer*"):
        path.unlink()
    return folder


def test_the_tokenizer_comes_at_the_start_where_that_is_asked_for(serve, engine_of):
    assert engine_of(serve())._decode is None
    assert engine_of(serve(skip_tokenizer_init=False))._decode is not None


def test_log_probs_can_be_left_out_or_raw(serve, make_policy):
    request = ask(PROMPTS[0], seed=1, temperature=0.5, top_k=3, max_tokens=8, ignore_eos=True)
    assert serve(calculate_log_probs=False).output(request).log_probs is None
    policy = make_policy("qwen2")
    output = serve(policy, logprobs_mode="raw_logprobs").output(request)
    table = torch.log_softmax(policy.logits(1, (*PROMPTS[0], *output.token_ids))[3:-1], dim=-1)
    expected = [float(row[token]) for row, token in zip(table, output.token_ids, strict=True)]
    assert output.log_probs == pytest.approx(expected, abs=2e-5)


def test_sleeping_frees_the_memory(serve, engine_of):
    replica = serve()
    device = engine_of(replica)._parts.device
    request = ask(PROMPTS[0], seed=3, max_tokens=5)
    before = replica.output(request)

    def held():
        tensors = (*device.weights.tensors.values(), *device.cache.keys, *device.cache.values)
        return sum({id(one.untyped_storage()): one.untyped_storage().nbytes() for one in tensors}.values())

    assert held() > 100_000
    for level, kept in ((1, frozenset({RolloutState.WEIGHTS})), (2, frozenset())):
        assert replica.on_all(lambda engine, level=level: engine.sleep(level)) == [kept]
        assert held() == 0
        replica.on_all(lambda engine: engine.wake({RolloutState.WEIGHTS}))
        if level == 2:
            replica.sync(1)
        replica.on_all(lambda engine: engine.wake({RolloutState.KV_CACHE}))
        assert bits([replica.output(request)]) == bits([before])


def test_a_hand_over_that_sleep_interrupts_is_over(serve):
    replica = serve()
    replica.begin(2)
    assert replica.on_all(lambda engine: engine.sleep(1)) == [frozenset()]
    replica.on_all(lambda engine: engine.wake(frozenset(RolloutState)))
    with pytest.raises(WeightSyncError, match="call begin first"):
        replica.end({})
    with pytest.raises(WeightSyncError):
        replica.output(ask(PROMPTS[0], max_tokens=2))


def test_requests_in_flight_get_the_error_when_weights_change_under_them(serve):
    replica = serve()
    replica.start(ask(PROMPTS[0], name="long", max_tokens=400, ignore_eos=True))
    replica.begin(2)
    with pytest.raises(WeightSyncError, match="missing, partial or discarded"):
        replica.wait("long", 10)


def test_a_paused_request_that_needs_the_old_weights_gets_an_error(serve):
    replica = serve()
    replica.start(ask(PROMPTS[0], name="old", max_tokens=400, ignore_eos=True, required_version=1))
    replica.start(ask(PROMPTS[1], name="any", max_tokens=6, ignore_eos=True))
    replica.on_all(lambda engine: engine.pause())
    replica.sync(2)
    replica.on_all(lambda engine: engine.resume())
    with pytest.raises(WeightSyncError, match="'old' needs weights of version 1; loaded is 2"):
        replica.wait("old", 10)
    assert replica.wait("any", 10).versions[-1][0] == 2


def test_a_diverged_model_fails_requests_by_name_and_the_next_weights_serve_again(serve, make_policy, monkeypatch):
    policy = make_policy("qwen2")
    expected = serve(policy).output(ask(PROMPTS[0], seed=1, max_tokens=8))
    broken = {name: tensor.clone() for name, tensor in policy.weights(1).items()}
    broken["model.norm.weight"][0] = torch.nan
    monkeypatch.setattr(
        policy, "weights", lambda version, good=policy.weights: broken if version == 2 else good(version)
    )
    replica = serve(policy)
    replica.sync(2)
    for outcome in replica.generate(*crowd(max_tokens=8)):
        assert isinstance(outcome, RlError)
        assert "version 2 gives logits that are not numbers at response position 0" in str(outcome)
    replica.sync(1)
    assert bits([replica.output(ask(PROMPTS[0], seed=1, max_tokens=8))]) == bits([expected])


def test_an_error_of_the_device_answers_everybody_and_is_over(serve, engine_of):
    replica = serve()
    device = engine_of(replica)._parts.device
    expected = replica.outputs(*crowd(max_tokens=8))
    step, calls = device._step, []

    def failing(plan):
        calls.append(None)
        if len(calls) == 3:
            raise torch.cuda.OutOfMemoryError("out of memory")
        return step(plan)

    device._step = failing
    for outcome in replica.generate(*crowd(max_tokens=8)):
        assert isinstance(outcome, RlError)
        assert "7 sequences" in str(outcome)
        assert "gpu_memory_utilization" in str(outcome)
    assert bits(replica.outputs(*crowd(max_tokens=8))) == bits(expected)


def test_deadlines_are_kept_while_the_model_computes(serve, engine_of):
    replica = serve()
    engine = engine_of(replica)
    replica.output(ask(PROMPTS[0], max_tokens=2))
    slow, threads = engine._parts.device.step, set()

    def step(plan):
        threads.add(threading.current_thread().name)
        time.sleep(0.2)
        return slow(plan)

    engine._parts.device.step = step

    async def give_up(engine):
        started = time.perf_counter()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(engine.generate(ask(PROMPTS[0], max_tokens=400, ignore_eos=True)), 0.25)
        return time.perf_counter() - started

    # The second step does not run on the loop any more, because the first one was not brief.
    engine._parts.device.step = step
    assert replica.on_lead(give_up) < 0.45
    assert threads <= {"rollout-hf-0_0", "rank-0-loop"}


def test_bfloat16_serves_too(serve, make_policy):
    policy = make_policy("qwen2")
    replica = serve(policy, own={"dtype": "bfloat16"})
    output = replica.output(ask(PROMPTS[0], seed=1, max_tokens=20, ignore_eos=True))
    table = torch.log_softmax(policy.logits(1, (*PROMPTS[0], *output.token_ids))[3:-1], dim=-1)
    expected = torch.stack([row[token] for row, token in zip(table, output.token_ids, strict=True)])
    assert float((torch.tensor(output.log_probs) - expected).abs().mean()) < 0.2


def test_a_base_model_without_chat_template_serves(serve, make_policy):
    policy = make_policy("gpt2")
    assert policy.tokenizer.chat_template is None
    assert len(serve(policy).output(ask(PROMPTS[1], max_tokens=4, ignore_eos=True)).token_ids) == 4


def test_what_an_engine_cannot_do_is_said_before_anything_is_built(make_sections, tmp_path):
    from rl_core.single_controller.base.collective import SoloCollective, WorkerContext
    from rl_rollout_hf.server import HfRollout

    context = WorkerContext(
        rank=0, world_size=1, local_rank=0, local_world_size=1, device="cpu", collective=SoloCollective()
    )
    with pytest.raises(ConfigError, match="tensor_model_parallel_size is 2"):
        HfRollout(*make_sections(tmp_path, tensor_model_parallel_size=2), context)

    async def missing_model():
        engine = HfRollout(*make_sections(tmp_path / "nowhere"), context)
        try:
            with pytest.raises(RlError, match="not initialized"):
                await engine.generate(ask((1,), max_tokens=1))
            with pytest.raises(ConfigError, match="nowhere"):
                await engine.initialize()
        finally:
            await engine.close()

    asyncio.run(missing_model())


def test_two_requests_of_one_name_are_not_mixed_up(serve):
    replica = serve()
    first, second = replica.generate(ask(PROMPTS[0], max_tokens=5), ask(PROMPTS[1], max_tokens=5))
    assert not isinstance(first, Exception)
    assert isinstance(second, RlError)
    assert "in flight already" in str(second)


def test_steps_of_a_slow_model_never_run_on_the_loop(serve, engine_of, monkeypatch):
    monkeypatch.setattr("rl_rollout_hf.device_thread.BRIEF_S", 0.0)
    replica = serve()
    device, threads = engine_of(replica)._parts.device, set()
    step = device.step
    device.step = lambda plan: (threads.add(threading.current_thread().name), step(plan))[1]
    replica.outputs(*crowd(max_tokens=5))
    assert threads == {"rollout-hf-0_0"}
    assert isinstance(engine_of(replica)._thread, DeviceThread)
