"""Promises of a generation engine about its weights: it serves a version whole and unchanged, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as with_fields
from typing import Any

import pytest
from rl_core.contracts.weights import WeightManifest, WeightSpec
from rl_core.errors import RlError, WeightSyncError

from rl_testing.contracts.policy import PolicyModel, as_buckets
from rl_testing.contracts.replica import Replica, ask
from rl_testing.contracts.rollout_base import RolloutSuite


def _without_first(manifest: WeightManifest) -> tuple[WeightManifest, str]:
    return with_fields(manifest, entries=manifest.entries[1:]), manifest.entries[0].name


def _with_stranger(manifest: WeightManifest) -> tuple[WeightManifest, str]:
    stranger = WeightSpec(name="a.stranger.weight", shape=(2, 3), dtype=manifest.entries[0].dtype)
    return with_fields(manifest, entries=(*manifest.entries, stranger)), stranger.name


def _with_shape(manifest: WeightManifest) -> tuple[WeightManifest, str]:
    first = manifest.entries[0]
    changed = with_fields(first, shape=(first.shape[0] + 1, *first.shape[1:]))
    return with_fields(manifest, entries=(changed, *manifest.entries[1:])), first.name


def _with_dtype(manifest: WeightManifest) -> tuple[WeightManifest, str]:
    first = manifest.entries[0]
    changed = with_fields(first, dtype="float16" if first.dtype != "float16" else "float32")
    return with_fields(manifest, entries=(changed, *manifest.entries[1:])), first.name


_MISFITS = {"missing": _without_first, "unknown": _with_stranger, "shape": _with_shape, "dtype": _with_dtype}


class RolloutWeightsContract(RolloutSuite):
    """Hand-over of weights."""

    def assert_serves_nothing(self, replica: Replica) -> None:
        """No version, and no tokens."""
        assert replica.version() is None
        with pytest.raises(WeightSyncError):
            replica.output(ask(self.prompts[0], max_tokens=2))

    def assert_serves(self, replica: Replica, version: int) -> None:
        """This version, with its numbers."""
        assert replica.version() == version
        requests = [ask(prompt, name=str(row), seed=row, max_tokens=6) for row, prompt in enumerate(self.prompts)]
        for request, output in zip(requests, replica.outputs(*requests), strict=True):
            assert output.versions == ((version, len(output.token_ids)),)
            self.assert_log_probs(replica.policy, version, request, output)

    def test_serves_nothing_before_the_first_hand_over(self, empty_replica: Replica) -> None:
        """Without weights there is no version and no response.

        If this fails: the engine serves whatever its memory holds (random or dummy weights). Start with ``version()`` None
        and raise ``WeightSyncError`` in ``generate`` until a sink's ``end`` has passed.
        """
        self.assert_serves_nothing(empty_replica)

    def test_serves_what_came(self, replica: Replica) -> None:
        """After a hand-over the engine says and serves its version.

        If this fails: tensors landed under another name, slice or transposed, or the version was not taken over.
        """
        self.assert_serves(replica, 1)

    def test_serves_the_latest(self, replica: Replica) -> None:
        """A second hand-over replaces every tensor.

        If this fails: a tensor (or what was derived from it when it was loaded, such as fused or transposed copies) is
        still the first version's.
        """
        replica.sync(2)
        self.assert_serves(replica, 2)

    def test_sinks_cover_every_rank_once(self, replica: Replica) -> None:
        """Over the workers of a replica each rank's sink appears exactly once.

        If this fails: a rank never gets its weights, or gets them twice. ``weight_sinks`` returns only the sinks that
        its own worker feeds.
        """
        ranks: list[int] = []
        for held in range(replica.ranks.size):
            ranks += replica.ranks.run(held, lambda holder: sorted(holder.engine.weight_sinks()))
        assert sorted(ranks) == list(range(len(ranks)))
        assert ranks

    @pytest.mark.parametrize("misfit", sorted(_MISFITS))
    def test_manifest_is_checked_before_anything_is_sent(self, replica: Replica, misfit: str) -> None:
        """A manifest that does not fit is refused by ``begin``, by name, and then nothing is served.

        If this fails: ``begin`` does not compare all names, shapes and dtypes with the model, so that the misfit is found
        (or not) when the trainer's ranks are inside a collective already.
        """
        manifest, name = _MISFITS[misfit](replica.policy.manifest())
        with pytest.raises(WeightSyncError) as refused:
            replica.begin(2, manifest)
        assert name in str(refused.value)
        self.assert_serves_nothing(replica)
        replica.sync(3)
        self.assert_serves(replica, 3)

    def test_all_misfits_are_listed(self, replica: Replica) -> None:
        """One error names everything that does not fit.

        If this fails: checking stops at the first problem, and its user repairs a model name by name.
        """
        manifest, shape_name = _with_shape(replica.policy.manifest())
        manifest, stranger = _with_stranger(manifest)
        missing = manifest.entries[1].name
        manifest = with_fields(manifest, entries=(manifest.entries[0], *manifest.entries[2:]))
        with pytest.raises(WeightSyncError) as refused:
            replica.begin(2, manifest)
        assert [name for name in (shape_name, stranger, missing) if name not in str(refused.value)] == []

    def test_changed_values_are_refused(self, replica: Replica) -> None:
        """A tensor that is not what the trainer sent fails ``end``, by name, and nothing is served.

        If this fails: ``end`` does not compare the digest of what was received, or goes on in spite of it.
        """
        manifest = replica.policy.manifest()
        buckets, digest = as_buckets(manifest, replica.policy.weights(2))
        damaged = manifest.sent[-1].name
        buckets[-1].slices[0].tensor.view(-1)[0] += 1
        replica.begin(2)
        replica.put(buckets)
        with pytest.raises(WeightSyncError) as refused:
            replica.end(digest)
        assert damaged in str(refused.value)
        self.assert_serves_nothing(replica)

    @pytest.mark.parametrize("pieces", [1, 2])
    def test_what_did_not_come_is_refused(self, replica: Replica, pieces: int) -> None:
        """A tensor, or a part of one, that never came fails ``end``, by name, and nothing is served.

        If this fails: ``end`` checks only what came. A tensor of the old version would go on living among new ones.
        """
        manifest = replica.policy.manifest()
        buckets, digest = as_buckets(manifest, replica.policy.weights(2), pieces=pieces)
        left_out = buckets.pop().slices[0].name
        replica.begin(2)
        replica.put(buckets)
        # Of a tensor that has not come at all, a careless sum over what came would find nothing wrong.
        with pytest.raises(WeightSyncError) as refused:
            replica.end({name: value for name, value in digest.items() if pieces > 1 or name != left_out})
        assert left_out in str(refused.value)
        self.assert_serves_nothing(replica)

    def test_what_was_not_announced_is_refused(self, replica: Replica) -> None:
        """A tensor that the manifest does not send fails ``put``.

        If this fails: unknown names are skipped, which hides a renamed tensor for a whole run.
        """
        manifest, name = _with_stranger(replica.policy.manifest())
        weights = {**replica.policy.weights(2), name: next(iter(replica.policy.weights(2).values()))}
        buckets, _ = as_buckets(manifest, weights)
        replica.begin(2)
        with pytest.raises(WeightSyncError) as refused:
            replica.put(buckets)
        assert name in str(refused.value)
        self.assert_serves_nothing(replica)

    def test_parts_of_tensors_are_put_together(self, replica: Replica) -> None:
        """Tensors may come in regions.

        If this fails: the sink ignores ``WeightSlice.region``, or counts each region as the whole tensor.
        """
        replica.sync(2, pieces=3)
        self.assert_serves(replica, 2)

    def test_half_a_hand_over_serves_nothing(self, replica: Replica) -> None:
        """From ``begin`` to a good ``end`` nothing is served.

        If this fails: requests meet a mixture of old and new weights. Drop the version in ``begin``.
        """
        buckets, _ = as_buckets(replica.policy.manifest(), replica.policy.weights(2))
        replica.begin(2)
        self.assert_serves_nothing(replica)
        replica.put(buckets[: len(buckets) // 2])
        self.assert_serves_nothing(replica)

    def test_every_rank_counts(self, replica: Replica) -> None:
        """While one rank has not ended its hand-over, the replica serves nothing.

        If this fails: the lead looks at its own weights only. It serves when every rank's ``end`` has passed.
        """
        buckets, digest = as_buckets(replica.policy.manifest(), replica.policy.weights(2))
        replica.begin(2)
        replica.put(buckets)
        *others, last = replica.sinks()
        for worker, rank in others:
            replica.end_one(worker, rank, digest)
        self.assert_serves_nothing(replica)
        replica.end_one(*last, digest)
        self.assert_serves(replica, 2)

    def test_aborted_hand_over_serves_nothing(self, replica: Replica) -> None:
        """After ``abort`` nothing is served until a hand-over has ended well.

        If this fails: ``abort`` brings the old version back though its tensors are overwritten, or the engine does not
        recover.
        """
        buckets, _ = as_buckets(replica.policy.manifest(), replica.policy.weights(2))
        replica.begin(2)
        replica.put(buckets[:1])
        replica.abort_sync("the trainer lost a rank")
        self.assert_serves_nothing(replica)
        replica.sync(3)
        self.assert_serves(replica, 3)

    def test_stale_weights_do_not_answer(self, replica: Replica) -> None:
        """A request for another version fails by itself; what fits is answered.

        If this fails: ``required_version`` is not compared, and training would use tokens of an older policy.
        """
        fits = ask(self.prompts[0], name="fits", max_tokens=2, required_version=1)
        stale = ask(self.prompts[1], name="stale", max_tokens=2, required_version=2)
        good, refused = replica.generate(fits, stale)
        assert not isinstance(good, Exception)
        assert good.versions == ((1, len(good.token_ids)),)
        assert isinstance(refused, WeightSyncError)
        assert "2" in str(refused)
        assert "1" in str(refused)

    def test_tied_tensors_follow(self, open_replica: Callable[..., Replica]) -> None:
        """A tied tensor is listed but never sent; every receiver follows the one that is, at each hand-over.

        If this fails: a model that holds the tensor twice kept its old copy, or one that shares it asked for a tensor
        that is never sent.
        """
        policy = self.make_policy(tied=True)
        for sections in self.tied_sections(policy):
            replica = open_replica(policy, sections)
            for version in (1, 2):
                replica.sync(version)
                self.assert_serves(replica, version)

    def test_prefixes_do_not_outlive_their_weights(self, replica: Replica) -> None:
        """The same prompt under new weights gets new numbers, once ``reset_prefix_cache`` was called.

        If this fails: ``reset_prefix_cache`` leaves cached prefixes, so responses start from old weights.
        """
        self.assert_serves(replica, 1)
        replica.sync(2)
        replica.on_all(lambda engine: engine.reset_prefix_cache())
        self.assert_serves(replica, 2)

    def test_only_the_lead_answers(self, replica: Replica) -> None:
        """One rank of a replica collects; the others refuse requests.

        If this fails: a batch would be answered twice, or by nobody. All ranks of a replica share its ``dp_rank``, and
        ``is_collect`` is true on its first rank only.
        """
        infos = replica.dispatch_infos()
        assert {(info.dp_rank, info.dp_size) for info in infos} == {(0, 1)}
        assert [info.is_collect for info in infos] == [True, *[False] * (replica.ranks.size - 1)]
        request = ask(self.prompts[0], max_tokens=2)
        for rank in range(1, replica.ranks.size):
            with pytest.raises(RlError):
                replica.ranks.run(rank, lambda held: held.run(held.engine.generate(request)))

    def test_health_follows_the_weights(self, empty_replica: Replica) -> None:
        """``health`` is good exactly when the engine can serve, and says why when not.

        If this fails: ``health`` reports that the process lives, which is not what callers ask.
        """

        async def health(engine: Any) -> Any:
            return await engine.health()

        before = empty_replica.on_lead(health)
        assert not before.ok
        assert before.detail
        empty_replica.sync(1)
        assert empty_replica.on_lead(health).ok

    def test_policies_of_two_versions_differ(self, policy: PolicyModel) -> None:
        """The suite's own ground: versions that can be told apart.

        If this fails: ``make_policy`` returns the same weights for every version, so nothing above is proved.
        """
        first, second = policy.weights(1), policy.weights(2)
        assert set(first) >= {spec.name for spec in policy.manifest().sent}
        assert all(not first[spec.name].equal(second[spec.name]) for spec in policy.manifest().sent)
