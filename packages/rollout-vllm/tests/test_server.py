"""The engine on vLLM's CPU build: what the contract's suite does not ask."""

from __future__ import annotations

import os
import signal
from dataclasses import replace as with_fields
from types import SimpleNamespace

import pytest
import torch
from rl_core.contracts.rollout import RolloutState
from rl_core.errors import ConfigError, RlError, WeightSyncError
from rl_core.single_controller.base.collective import WorkerContext
from rl_rollout_vllm.server import VllmRollout
from rl_testing.contracts.replica import ask

pytestmark = pytest.mark.heavy

# 2 layers x 2 (keys, values) x 64 numbers of 4 byte = 1 KiB a token; a block has 128.
SMALL = {"max_model_len": 1024, "max_num_batched_tokens": 128, "own": {"cache_gib": 2.5 / 1024}}
PROMPTS = ((5, 3, 9, 4), (11, 10, 12, 13, 14, 15))


def greedy(policy, version, prompt, count):
    """What transformers generates."""
    ids = torch.tensor([prompt])
    out = policy.model(version).generate(ids, max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0)
    return tuple(out[0, len(prompt) :].tolist())


def assert_greedy_equals_transformers(replica, version):
    requests = [ask(prompt, name=str(prompt), temperature=0.0, max_tokens=16, ignore_eos=True) for prompt in PROMPTS]
    for prompt, output in zip(PROMPTS, replica.outputs(*requests), strict=True):
        assert output.token_ids == greedy(replica.policy, version, prompt, 16)


@pytest.mark.parametrize("model_type", ["qwen2", "llama"])
def test_greedy_tokens_are_those_of_transformers_before_and_after_an_update(serve, make_policy, model_type):
    replica = serve(make_policy(model_type))
    for version in (1, 2):
        if version > 1:
            replica.sync(version)
            replica.on_all(lambda engine: engine.reset_prefix_cache())
        assert_greedy_equals_transformers(replica, version)


def test_a_replica_of_two_workers(serve):
    replica = serve(num_ranks=2)
    assert_greedy_equals_transformers(replica, 1)
    replica.sync(2)
    replica.on_all(lambda engine: engine.reset_prefix_cache())
    assert_greedy_equals_transformers(replica, 2)
    assert [info.is_collect for info in replica.dispatch_infos()] == [True, False]
    with pytest.raises(RlError, match="rank 0"):
        replica.ranks.run(1, lambda held: held.run(held.engine.generate(ask((1, 2)))))
    kept = replica.on_all(lambda engine: engine.sleep(2))
    assert set(kept) == {frozenset()}
    replica.on_all(lambda engine: engine.wake([RolloutState.WEIGHTS]))
    replica.sync(3)
    replica.on_all(lambda engine: engine.wake([RolloutState.KV_CACHE]))
    assert_greedy_equals_transformers(replica, 3)


def test_a_response_that_was_cut_goes_on_with_new_weights(serve):
    replica = serve()
    request = ask(PROMPTS[0], name="long", seed=7, max_tokens=3000, ignore_eos=True)
    replica.start(request)
    replica.output(ask(PROMPTS[1], name="short", max_tokens=1))  # ends after the long one has drawn a token
    replica.on_lead(lambda engine: engine.abort(["long"]))
    first = replica.wait("long", 60)
    assert first.finish_reason == "abort"
    replica.sync(2)
    replica.on_all(lambda engine: engine.reset_prefix_cache())
    drawn = len(first.token_ids)
    rest = replica.output(
        with_fields(
            request,
            response_ids=first.token_ids,
            required_version=2,
            sampling=with_fields(request.sampling, max_tokens=drawn + 4),
        )
    )
    assert rest.versions == ((2, 4),)
    table = torch.log_softmax(
        replica.policy.logits(2, (*PROMPTS[0], *first.token_ids, *rest.token_ids)).double(), dim=-1
    )
    expected = [float(table[len(PROMPTS[0]) + drawn + at - 1, token]) for at, token in enumerate(rest.token_ids)]
    assert list(rest.log_probs) == pytest.approx(expected, abs=5e-4)


def test_a_prompt_in_pieces_draws_what_a_whole_one_does(serve):
    request = ask(tuple(5 + at % 80 for at in range(700)), seed=3, max_tokens=6, ignore_eos=True)
    whole = serve().output(request)
    pieces = serve(**SMALL).output(request)
    assert whole.token_ids == pieces.token_ids
    assert list(whole.log_probs) == pytest.approx(list(pieces.log_probs), abs=5e-4)


def test_a_full_cache_makes_sequences_start_again_without_changing_them(serve, caplog):
    replica = serve(**SMALL)
    requests = [ask(PROMPTS[0], name=str(seed), seed=seed, max_tokens=500, ignore_eos=True) for seed in range(8)]
    alone = replica.output(requests[0])
    replica.on_lead(lambda engine: engine.metrics())
    together = replica.outputs(*requests)
    metrics = replica.on_lead(lambda engine: engine.metrics())
    assert metrics["rollout/preemptions"].value > 0
    assert metrics["rollout/kv_cache_tokens"].value <= 2560
    assert metrics["rollout/max_concurrency"].value == metrics["rollout/kv_cache_tokens"].value / 1024
    assert together[0].token_ids == alone.token_ids
    assert "generation crawls" in caplog.text


def test_text_models_take_no_images(serve):
    replica = serve()
    with pytest.raises(RlError, match="1 images"):
        replica.output(with_fields(ask(PROMPTS[0]), images=("picture",)))


def test_stale_requests_say_both_versions(serve):
    with pytest.raises(WeightSyncError, match="needs weights of version 5; loaded is 1"):
        serve().output(ask(PROMPTS[0], required_version=5))


def test_a_start_leaves_the_trainers_random_numbers_alone(pool, serve):
    for _, engine in pool.idle:
        pool.runner.run(engine.end())
    pool.idle.clear()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    serve(version=None)
    torch.testing.assert_close(torch.rand(3), expected, rtol=0, atol=0)


def start(chosen):
    context = WorkerContext(
        rank=0,
        world_size=1,
        local_rank=0,
        local_world_size=1,
        device="cpu",
        collective=SimpleNamespace(all_gather_object=lambda mine, timeout_s=None: [mine]),
    )
    return VllmRollout(*chosen, context)


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"engine_kwargs": {"vllm": {"blok_size": 1}}}, ConfigError, r"engine_kwargs\.vllm\.blok_size.*block_size"),
        (
            {"engine_kwargs": {"vllm": {"kv_cache_dtype": "no"}}},
            ConfigError,
            "does not accept.*kv_cache_dtype|cache_dtype",
        ),
        ({"own": {"cache_gib": 0.001}}, RlError, "(?s)did not start.*vllm.cache_gib.*vLLM's last lines"),
    ],
)
def test_what_vllm_refuses_is_an_error_that_quotes_it(
    pool, tmp_path, make_policy, make_sections, options, error, named
):
    folder = make_policy().save(tmp_path / "model")
    engine = start(make_sections(folder, **options))
    with pytest.raises(error, match=named):
        pool.runner.run(engine.initialize())


def test_an_engine_that_dies_says_so_and_is_replaced(serve, engine_of):
    replica = serve()
    lead = engine_of(replica)._lead
    (pid,) = replica.on_lead(lambda engine: lead.engine.rpc("rl_process"))
    replica.start(ask(PROMPTS[0], name="doomed", max_tokens=3000, ignore_eos=True))
    replica.output(ask(PROMPTS[1], name="short", max_tokens=1))  # ends after the doomed one has drawn a token
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(RlError, match="engine died while it answered"):
        replica.wait("doomed", 60)
    health = replica.on_lead(lambda engine: engine.health())
    assert not health.ok
    assert "died" in health.detail
    with pytest.raises(RlError, match="died"):
        replica.output(ask(PROMPTS[0]))
    replica.on_all(lambda engine: engine.sleep(2))
    replica.on_all(lambda engine: engine.wake(list(RolloutState)))
    assert replica.version() is None
    replica.sync(2)
    assert_greedy_equals_transformers(replica, 2)
    assert replica.on_lead(lambda engine: engine.metrics())["rollout/engine_restarts"].value == 1
