"""Every planted fault of a generation engine; run them on ``rl_testing.fakes.rollout_sections.SlicedRolloutContract``."""

from __future__ import annotations

from rl_testing.faults import rollout_lifecycle, rollout_requests, rollout_sampling, rollout_weights

FAULTS = (
    *rollout_weights.FAULTS,
    *rollout_requests.FAULTS,
    *rollout_sampling.FAULTS,
    *rollout_lifecycle.FAULTS,
)
