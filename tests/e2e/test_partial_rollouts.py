"""A response over two hand-overs, on the fake replica of two ranks: each token is its version's, in draw and log-prob."""

import pytest
import torch
from rl_core.contracts.rollout import SamplingParams
from rl_core.workers.rollout_rows import DEADLINE_KEY, SAMPLING_KEY, RolloutRow, pack_rows, unpack_rows
from rl_core.workers.rollout_session import RolloutSession
from rl_dataproto import DataProto, jagged_from_rows
from rl_testing.contracts.replica import Replica, ask
from rl_testing.fakes.rollout_sections import SlicedRolloutContract

LENGTH, SEEDS = 400, (3, 4)


class TwoRanks(SlicedRolloutContract):
    num_ranks = 2


@pytest.fixture
def replica():
    suite = TwoRanks()
    policy = suite.make_policy()
    replica = Replica(suite.make_ranks(suite.make_sections(policy, suite.eos_token_ids)), policy)
    yield replica
    replica.ranks.close()


def submitted(rows):
    prompts = DataProto.from_dict(
        tensors={
            "prompts": jagged_from_rows([torch.tensor(TwoRanks.prompts[0])] * len(rows), torch.int64),
            "seed": torch.tensor(SEEDS),
        },
        meta_info={SAMPLING_KEY: SamplingParams(max_tokens=LENGTH, ignore_eos=True), DEADLINE_KEY: 60.0},
    )
    return prompts.union(pack_rows(rows, has_log_probs=True))


def phase(replica, rows, version, cut_after):
    """The rows after a phase that is cut as soon as a response has ``cut_after`` tokens more; None ends by itself."""

    async def play(engine):
        session = RolloutSession(engine)
        await session.submit(submitted(rows), version)
        if cut_after is None:
            ended = []
            while len(ended) < len(rows):
                ended += unpack_rows(await session.poll(5.0))
            return ended
        # Requests advance together: when this one has ended, the others have drawn about as many tokens.
        await engine.generate(ask(TwoRanks.prompts[1], name="clock", max_tokens=cut_after, ignore_eos=True))
        return unpack_rows(await session.abort())

    return sorted(replica.on_lead(play), key=lambda row: row.request_id)


def test_each_token_is_of_the_version_that_drew_it(replica):
    rows = [RolloutRow(request_id=str(seed)) for seed in SEEDS]
    for version, cut_after in ((1, 5), (2, 7), (5, None)):
        replica.sync(version)
        rows = phase(replica, rows, version, cut_after)

    for row in rows:
        assert [version for version, _ in row.versions] == [1, 2, 5]
        assert sum(count for _, count in row.versions) == LENGTH == len(row.token_ids)
        drawn_by = [version for version, count in row.versions for _ in range(count)]
        prompt = TwoRanks.prompts[0]
        tables = {
            version: torch.log_softmax(replica.policy.logits(version, (*prompt, *row.token_ids.tolist())).double(), -1)
            for version in (1, 2, 5)
        }
        expected = [
            float(tables[version][len(prompt) - 1 + position][token])
            for position, (version, token) in enumerate(zip(drawn_by, row.token_ids.tolist(), strict=True))
        ]
        assert row.log_probs.tolist() == pytest.approx(expected, abs=1e-6)


def test_cuts_leave_no_trace_in_what_one_version_draws(replica):
    replica.sync(1)
    whole = [
        replica.output(ask(TwoRanks.prompts[0], name=str(seed), seed=seed, max_tokens=LENGTH, ignore_eos=True))
        for seed in SEEDS
    ]
    rows = [RolloutRow(request_id=str(seed)) for seed in SEEDS]
    for cut_after in (5, 1, 9, None):
        rows = phase(replica, rows, 1, cut_after)
    for row, output in zip(rows, whole, strict=True):
        assert tuple(row.token_ids.tolist()) == output.token_ids
        assert row.versions == ((1, LENGTH),)
        assert row.log_probs.tolist() == pytest.approx(list(output.log_probs), abs=1e-6)
