from __future__ import annotations

import pytest
from rl_core.config import RolloutConfig
from rl_core.errors import ConfigError
from rl_testing.contracts.policy import as_buckets
from rl_testing.contracts.ranks import ThreadRanks
from rl_testing.contracts.replica import Replica, ServingRank, ask, build_serving_rank
from rl_testing.fakes.echo_rollout import EchoRollout
from rl_testing.fakes.tiny_policy import TinyPolicy

POLICY = TinyPolicy()


@pytest.fixture
def replica():
    rollout = RolloutConfig(name="echo")
    build = build_serving_rank(lambda context: EchoRollout(None, rollout, context), 20.0)
    ranks = ThreadRanks(1, build, dispose=ServingRank.close)
    replica = Replica(ranks, POLICY)
    replica.sync(1)
    yield replica
    ranks.close()


@pytest.mark.parametrize(
    ("sampling", "tokens", "reason"),
    [
        ({}, (5, 3, 9, 1), "stop"),
        ({"max_tokens": 2}, (5, 3), "length"),
        ({"max_tokens": 3}, (5, 3, 9), "length"),
        ({"min_tokens": 6}, (5, 3, 9, 5, 3, 1), "stop"),
        ({"ignore_eos": True, "max_tokens": 5}, (5, 3, 9, 5, 3), "length"),
        ({"stop_token_ids": (3,)}, (5, 3), "stop"),
        ({"temperature": 0.0}, (5, 3, 9, 1), "stop"),
    ],
)
def test_the_response_is_the_prompt(replica, sampling, tokens, reason):
    output = replica.output(ask((5, 3, 9), **sampling))
    assert (output.token_ids, output.finish_reason, output.log_probs) == (tokens, reason, None)
    assert output.versions == ((1, len(tokens)),)


def test_weights_are_remembered_by_their_digest(replica):
    _, digest = as_buckets(POLICY.manifest(), POLICY.weights(1))
    assert replica.ranks.run(0, lambda held: held.engine.digest) == digest


def test_there_is_no_model_to_slice():
    rollout = RolloutConfig(name="echo", tensor_model_parallel_size=2)
    with pytest.raises(ConfigError, match="set it to 1"):
        ThreadRanks(2, build_serving_rank(lambda context: EchoRollout(None, rollout, context), 20.0))
