from __future__ import annotations

import asyncio

import pytest
import torch
from rl_core.contracts.weights import WeightManifest
from rl_core.errors import ConfigError, WeightSyncError
from rl_rollout_hf.model import build_empty, named_weights
from rl_rollout_hf.weights import ModelSink, ModelWeights
from rl_testing.contracts.policy import as_buckets

CPU = torch.device("cpu")


@pytest.fixture
def policy(make_policy):
    return make_policy("qwen2")


def sink_of(model, *, on_device=None, check_model=lambda: None, is_awake=lambda: True):
    async def inline(function, *arguments):
        return function(*arguments)

    return ModelSink(ModelWeights(model), on_device or inline, is_awake=is_awake, check_model=check_model)


def empty_model(policy, dtype=torch.float32):
    return build_empty(policy.model(1).config, dtype, CPU, trust_remote_code=False)


async def hand_over(sink, policy, version=1, manifest=None):
    manifest = manifest or policy.manifest()
    buckets, digest = as_buckets(manifest, policy.weights(version))
    await sink.begin(version, manifest)
    for bucket in buckets:
        await sink.put(bucket)
    await sink.end(digest)


def test_weights_are_copied_and_the_sender_keeps_its_own(policy):
    model = empty_model(policy)
    sink = sink_of(model)
    asyncio.run(hand_over(sink, policy))
    assert (sink.version, sink.handovers) == (1, 1)
    sent = policy.weights(1)
    for name, tensor in named_weights(model):
        assert torch.equal(tensor, sent[name])
        assert tensor.data_ptr() != sent[name].data_ptr()


def test_weights_of_another_type_are_converted(policy):
    model = empty_model(policy, torch.bfloat16)
    asyncio.run(hand_over(sink_of(model), policy))
    sent = policy.weights(1)
    assert all(torch.equal(tensor, sent[name].bfloat16()) for name, tensor in named_weights(model))


def test_what_lies_in_the_model_is_checked_too(policy):
    model = empty_model(policy)

    async def faulty(function, *arguments):
        function(*arguments)
        with torch.no_grad():
            model.model.norm.weight[3] += 1  # as a wrong slice or a failing device would

    with pytest.raises(WeightSyncError, match=r"stored wrongly: \['model.norm.weight'\]"):
        asyncio.run(hand_over(sink_of(model, on_device=faulty), policy))


def test_the_model_is_checked_once_with_the_first_weights(policy):
    calls = []
    sink = sink_of(empty_model(policy), check_model=lambda: calls.append(None))
    asyncio.run(hand_over(sink, policy, 1))
    asyncio.run(hand_over(sink, policy, 2))
    assert len(calls) == 1
    assert (sink.version, sink.handovers) == (2, 2)


def test_a_model_that_cannot_be_served_is_not(policy):
    def refuse():
        raise ConfigError("not this one")

    sink = sink_of(empty_model(policy), check_model=refuse)
    for _ in range(2):
        with pytest.raises(ConfigError, match="not this one"):
            asyncio.run(hand_over(sink, policy))
        assert sink.version is None


def test_adapters_are_refused(policy):
    sink = sink_of(empty_model(policy))
    manifest = WeightManifest(entries=policy.manifest().entries, stream="adapter")
    with pytest.raises(WeightSyncError, match=r"'adapter'.*model.lora.merge"):
        asyncio.run(sink.begin(1, manifest))


def test_an_abort_during_a_copy_ends_the_hand_over(policy):
    sink = None

    async def interrupted(function, *arguments):
        function(*arguments)
        await sink.abort("the trainer lost a rank")

    sink = sink_of(empty_model(policy), on_device=interrupted)
    with pytest.raises(WeightSyncError, match="call begin first"):
        asyncio.run(hand_over(sink, policy))
    assert sink.version is None


def test_nothing_is_taken_after_an_error(policy):
    async def check():
        sink = sink_of(empty_model(policy))
        buckets, digest = as_buckets(policy.manifest(), policy.weights(1))
        await sink.begin(1, policy.manifest())
        await sink.put(buckets[0])
        with pytest.raises(WeightSyncError):
            await sink.end(digest)
        for step in (sink.put(buckets[1]), sink.end(digest)):
            with pytest.raises(WeightSyncError, match="call begin first"):
                await step

    asyncio.run(check())


def test_targets_follow_the_ties_of_both_sides(make_policy):
    tied, apart = make_policy("qwen2", tied=True), make_policy("qwen2")
    shared = ModelWeights(empty_model(tied)).targets(tied.manifest())
    assert len(shared["model.embed_tokens.weight"]) == 1
    held_twice = ModelWeights(empty_model(apart))
    targets = held_twice.targets(tied.manifest())["model.embed_tokens.weight"]
    assert {id(tensor) for tensor in targets} == {
        id(held_twice.tensors["model.embed_tokens.weight"]),
        id(held_twice.tensors["lm_head.weight"]),
    }
