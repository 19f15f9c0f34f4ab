from __future__ import annotations

import asyncio
import pickle

import numpy as np
import pytest
import torch
from rl_core.contracts.rollout import RolloutState
from rl_core.errors import RlError, WeightSyncError
from rl_testing.contracts.policy import as_buckets
from rl_testing.fakes.model_slice import ModelSlice, SliceSink
from rl_testing.fakes.tiny_model import EMBED, HEAD, TinyConfig, init_weights, manifest

CONFIG = TinyConfig(vocab_size=7, hidden_size=4, num_layers=1)
TIED = TinyConfig(vocab_size=7, hidden_size=4, num_layers=1, tie_word_embeddings=True)


def awake(config=CONFIG, rank=0, size=1):
    part = ModelSlice(config, rank, size)
    part.wake(tuple(RolloutState))
    return part


def fill(part, config, version=1, pieces=1):
    async def hand_over():
        sink = SliceSink(part)
        buckets, digest = as_buckets(manifest(config), init_weights(config), pieces=pieces)
        await sink.begin(version, manifest(config))
        for bucket in buckets:
            await sink.put(bucket)
        await sink.end(digest)

    asyncio.run(hand_over())


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_slices_cover_every_row_once(size):
    parts = [ModelSlice(CONFIG, rank, size) for rank in range(size)]
    for name, tensor in parts[0].expected.items():
        assert [row for part in parts for row in range(*part.bounds[name])] == list(range(tensor.shape[0]))
    assert {stop - start for start, stop in (part.bounds[EMBED] for part in parts)} <= {7 // size, -(-7 // size)}


@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_each_rank_keeps_its_rows(pieces):
    weights = init_weights(CONFIG)
    for rank in range(3):
        part = awake(rank=rank, size=3)
        fill(part, CONFIG, pieces=pieces)
        for name, tensor in weights.items():
            np.testing.assert_array_equal(part.rows(name), tensor.numpy()[slice(*part.bounds[name])])


def test_regions_may_cut_columns_too():
    part = awake(rank=1, size=2)
    part.write(EMBED, ((2, 6), (1, 3)), torch.arange(8.0).reshape(4, 2))
    # Rank 1 of 2 has rows 4 to 6 of 7; the region covers 4 and 5.
    assert part.rows(EMBED)[:2, 1:3].tolist() == [[4.0, 5.0], [6.0, 7.0]]
    assert np.isnan(part.rows(EMBED)).sum() == 3 * 4 - 4


@pytest.mark.parametrize("held", [CONFIG, TIED], ids=["holds both", "shares"])
def test_a_tied_head_follows_the_embedding(held):
    part = awake(held)
    fill(part, TIED)
    np.testing.assert_array_equal(part.rows(HEAD), init_weights(TIED)[EMBED].numpy())
    assert (part.rows(HEAD) is part.rows(EMBED)) == held.tie_word_embeddings


def test_level_1_comes_back_and_level_2_does_not():
    part = awake()
    fill(part, CONFIG, version=4)
    before = part.rows(EMBED).copy()
    assert part.sleep(1) == {RolloutState.WEIGHTS}
    with pytest.raises(RlError, match="asleep"):
        part.rows(EMBED)
    part.wake([RolloutState.WEIGHTS])
    np.testing.assert_array_equal(part.rows(EMBED), before)
    assert part.version == 4
    assert part.sleep(2) == frozenset()
    part.wake([RolloutState.WEIGHTS])
    assert np.isnan(part.rows(EMBED)).all()
    assert part.version is None


def test_an_error_ends_the_hand_over():
    async def script():
        sink = SliceSink(awake())
        buckets, digest = as_buckets(manifest(CONFIG), init_weights(CONFIG))
        await sink.begin(1, manifest(CONFIG))
        with pytest.raises(WeightSyncError, match="does not send"):
            await sink.put(as_buckets(manifest(TinyConfig(num_layers=2)), init_weights(TinyConfig(num_layers=2)))[0][4])
        with pytest.raises(WeightSyncError, match="outside of a hand-over"):
            await sink.put(buckets[0])
        with pytest.raises(WeightSyncError, match="outside of a hand-over"):
            await sink.end(digest)

    asyncio.run(script())


def test_memory_is_checked_too():
    class Forgetful(ModelSlice):
        def write(self, name, region, values):
            super().write(name, region, values * 2 if name == HEAD else values)

    part = Forgetful(CONFIG, 0, 1)
    part.wake(tuple(RolloutState))
    with pytest.raises(WeightSyncError, match=f"stored wrongly: \\['{HEAD}'\\]"):
        fill(part, CONFIG)
    assert part.version is None


def test_a_slice_stays_in_its_process():
    with pytest.raises(RlError, match="runtime=local"):
        pickle.dumps(ModelSlice(CONFIG, 0, 1))
