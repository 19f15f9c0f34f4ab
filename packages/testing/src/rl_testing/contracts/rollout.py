"""The suite for generation engines.

::

    class TestMyRollout(RolloutContract):
        rollout_class = MyRollout

        def make_policy(self, *, tied=False): ...  # a model of a few layers, also computed without the engine
        def make_sections(self, policy, eos_token_ids): ...  # what the run's configuration would say
"""

from __future__ import annotations

from rl_testing.contracts.rollout_lifecycle import RolloutLifeCycleContract
from rl_testing.contracts.rollout_requests import RolloutRequestsContract
from rl_testing.contracts.rollout_sampling import RolloutSamplingContract
from rl_testing.contracts.rollout_weights import RolloutWeightsContract


class RolloutProtocolContract(RolloutWeightsContract, RolloutRequestsContract, RolloutLifeCycleContract):
    """All but the numbers: for an engine whose tokens do not come from weights."""

    samples_from_policy = False


class RolloutContract(
    RolloutWeightsContract, RolloutRequestsContract, RolloutLifeCycleContract, RolloutSamplingContract
):
    """Everything that a generation engine promises. See ``RolloutSuite`` for what to override."""
