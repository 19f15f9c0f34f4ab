"""Promises of a generation engine about its life: sleep and wake, pause and resume, and the end."""

from __future__ import annotations

import pytest
from rl_core.contracts.rollout import RolloutState
from rl_core.errors import RlError, WeightSyncError

from rl_testing.contracts.replica import Replica, ask, essence
from rl_testing.contracts.rollout_base import RolloutSuite

_WEIGHTS, _CACHE = RolloutState.WEIGHTS, RolloutState.KV_CACHE
_BOTH = frozenset((_WEIGHTS, _CACHE))


class RolloutLifeCycleContract(RolloutSuite):
    """Device memory comes and goes; requests wait, or say why not."""

    def residents(self, replica: Replica) -> set[frozenset[RolloutState]]:
        """What is on the device, over all ranks; one element when they agree."""
        return {replica.ranks.run(rank, lambda held: held.engine.resident()) for rank in range(replica.ranks.size)}

    def wake(self, replica: Replica, *tags: RolloutState) -> None:
        """Wake ``tags`` on every rank."""
        replica.on_all(lambda engine: engine.wake(tags))

    @pytest.mark.parametrize("level", [1, 2])
    def test_sleep_gives_everything_back(self, replica: Replica, level: int) -> None:
        """A sleeping engine holds nothing on the device, and says so when it is asked for tokens.

        If this fails: weights or cache stay, and the update that follows runs out of memory; or a request waits for an
        engine that nobody is going to wake.
        """
        assert self.residents(replica) == {_BOTH}
        replica.on_all(lambda engine: engine.sleep(level))
        assert self.residents(replica) == {frozenset()}
        with pytest.raises(RlError):
            replica.output(ask(self.prompts[0], max_tokens=2))

    def test_level_1_keeps_the_weights(self, replica: Replica) -> None:
        """After level 1 and waking, the same version gives the same answers, without a hand-over.

        If this fails: the weights were discarded, or came back changed; or ``sleep`` did not report that they are kept.
        """
        request = ask(self.prompts[0], seed=5, max_tokens=6)
        before = essence(replica.output(request))
        kept = replica.on_all(lambda engine: engine.sleep(1))
        assert set(kept) == {frozenset((_WEIGHTS,))}
        assert replica.version() == 1
        self.wake(replica, _WEIGHTS)
        self.wake(replica, _CACHE)
        assert essence(replica.output(request)) == before

    def test_level_2_discards_the_weights(self, replica: Replica) -> None:
        """After level 2 there is no version until the next hand-over, waking or not.

        If this fails: the engine claims to hold weights that are gone, so no hand-over follows and it samples from
        whatever its memory holds.
        """
        kept = replica.on_all(lambda engine: engine.sleep(2))
        assert set(kept) == {frozenset()}
        assert replica.version() is None
        self.wake(replica, _WEIGHTS, _CACHE)
        assert replica.version() is None
        with pytest.raises(WeightSyncError):
            replica.output(ask(self.prompts[0], max_tokens=2))
        replica.sync(3)
        request = ask(self.prompts[0], max_tokens=4)
        self.assert_log_probs(replica.policy, 3, request, replica.output(request))

    def test_waking_is_staged(self, replica: Replica) -> None:
        """``wake`` takes memory for what it is asked, no more; weights arrive while the cache still sleeps.

        If this fails: waking the weights brings the cache too, so that old weights, new weights and the cache stand in
        memory together.
        """
        replica.on_all(lambda engine: engine.sleep(2))
        self.wake(replica, _WEIGHTS)
        assert self.residents(replica) == {frozenset((_WEIGHTS,))}
        replica.sync(2)
        assert self.residents(replica) == {frozenset((_WEIGHTS,))}
        with pytest.raises(RlError):
            replica.output(ask(self.prompts[0], max_tokens=2))
        self.wake(replica, _CACHE)
        assert self.residents(replica) == {_BOTH}
        assert replica.output(ask(self.prompts[0], max_tokens=2)).versions[0][0] == 2

    def test_weights_cannot_come_while_they_sleep(self, replica: Replica) -> None:
        """A hand-over to sleeping weights is refused at ``begin``.

        If this fails: tensors are copied into memory that was given back.
        """
        replica.on_all(lambda engine: engine.sleep(1))
        with pytest.raises(WeightSyncError):
            replica.begin(2)

    def test_what_is_awake_may_be_woken_again(self, replica: Replica) -> None:
        """Waking twice changes nothing.

        If this fails: a second ``wake`` takes memory anew and loses the weights.
        """
        request = ask(self.prompts[0], seed=5, max_tokens=4)
        before = essence(replica.output(request))
        self.wake(replica, _WEIGHTS, _CACHE)
        assert essence(replica.output(request)) == before

    def test_pause_stops_and_resume_goes_on(self, replica: Replica) -> None:
        """Paused requests stay in flight, draw nothing, and end after ``resume`` as if nothing had been.

        If this fails: ``pause`` aborts or loses requests, does not stop them, or the draws depend on when it came.
        """
        request = ask(self.prompts[0], name="paused", seed=4, max_tokens=6, ignore_eos=True)
        before = essence(replica.output(request))
        replica.on_all(lambda engine: engine.pause())
        replica.start(request)
        with pytest.raises(TimeoutError):
            replica.wait("paused", 0.05)
        replica.on_all(lambda engine: engine.resume())
        assert essence(replica.wait("paused", self.deadline_s)) == before

    def test_a_response_over_two_versions_says_so(self, replica: Replica) -> None:
        """Weights may change while requests are paused; each token is counted to the version that drew it.

        If this fails: the whole response is attributed to one version, the requests die with the old weights, or numbers
        after ``resume`` still come from old prefixes (then set ``keeps_prefix_after_update``).
        """
        request = ask(self.prompts[0], name="long", seed=4, max_tokens=self.long_response, ignore_eos=True)
        replica.start(request)
        # It ends only after the long one, which came first, has drawn a token; so does the next one below.
        replica.output(ask(self.prompts[1], name="short", max_tokens=1))
        replica.on_all(lambda engine: engine.pause())
        replica.sync(2)
        replica.on_all(lambda engine: engine.reset_prefix_cache())
        replica.on_all(lambda engine: engine.resume())
        replica.output(ask(self.prompts[1], name="short", max_tokens=1))
        replica.on_lead(lambda engine: engine.abort(["long"]))
        output = replica.wait("long", self.deadline_s)
        assert [version for version, _ in output.versions] == [1, 2]
        assert sum(count for _, count in output.versions) == len(output.token_ids)
        if self.samples_from_policy and output.log_probs is not None:
            first = output.versions[0][1]
            for version, part in ((1, slice(0, first)), (2, slice(first, None))):
                if version == 2 and self.keeps_prefix_after_update:
                    continue
                table = self.expected_log_probs(replica.policy, version, request.prompt_ids, output, 1.0)[part]
                expected = [float(row[token]) for row, token in zip(table, output.token_ids[part], strict=True)]
                assert list(output.log_probs[part]) == pytest.approx(expected, abs=self.log_prob_tolerance)

    def test_a_closed_engine_refuses(self, replica: Replica) -> None:
        """After ``close`` a request is refused at once.

        If this fails: ``close`` leaves the engine's tasks or devices behind, or later calls hang.
        """
        replica.on_all(lambda engine: engine.close())
        with pytest.raises(RlError):
            replica.output(ask(self.prompts[0], max_tokens=2))
