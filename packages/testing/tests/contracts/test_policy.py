from __future__ import annotations

import torch
from rl_core.resharding.digest import bit_sum
from rl_testing.contracts.policy import as_buckets
from rl_testing.fakes.tiny_model import EMBED, HEAD, TinyConfig
from rl_testing.fakes.tiny_policy import TinyPolicy

POLICY = TinyPolicy(config=TinyConfig(vocab_size=7, hidden_size=4, num_layers=1, tie_word_embeddings=True))


def test_a_stream_is_what_the_manifest_sends():
    buckets, digest = as_buckets(POLICY.manifest(), POLICY.weights(1))
    names = [part.name for bucket in buckets for part in bucket.slices]
    assert names == list(digest) == [spec.name for spec in POLICY.manifest().sent]
    assert HEAD not in names
    assert digest[EMBED] == bit_sum(POLICY.weights(1)[EMBED])
    assert [bucket.index for bucket in buckets] == list(range(len(buckets)))


def test_pieces_are_regions_of_the_whole():
    buckets, _ = as_buckets(POLICY.manifest(), POLICY.weights(1), pieces=3)
    parts = [part for bucket in buckets for part in bucket.slices if part.name == EMBED]
    assert [part.region for part in parts] == [((0, 3), (0, 4)), ((3, 5), (0, 4)), ((5, 7), (0, 4))]
    assert torch.cat([part.tensor for part in parts]).equal(POLICY.weights(1)[EMBED])


def test_what_is_left_out_is_still_in_the_digest():
    buckets, digest = as_buckets(POLICY.manifest(), POLICY.weights(1), leave_out=[EMBED])
    assert EMBED not in {part.name for bucket in buckets for part in bucket.slices}
    assert EMBED in digest


def test_versions_are_different_and_repeat():
    first, again, second = POLICY.weights(1), POLICY.weights(1), POLICY.weights(2)
    assert all(first[name].equal(again[name]) for name in first)
    assert not any(first[name].equal(second[name]) for name in first)
