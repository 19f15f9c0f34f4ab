from __future__ import annotations

import pytest
from rl_testing.contracts.rollout import RolloutContract
from rl_testing.contracts.runner import run_contract
from rl_testing.fakes.rollout_sections import SlicedRolloutContract
from rl_testing.faults.rollout import FAULTS

# Not a promise of the engine, but of whoever runs the suite.
GROUND = {"test_no_promise_is_taken_out", "test_policies_of_two_versions_differ"}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_suite_catches_it(fault):
    failures = run_contract(SlicedRolloutContract, fault.overrides, select=[fault.caught_by])
    assert {failure.test.split("[")[0] for failure in failures} == {fault.caught_by}


def test_every_promise_has_its_fault():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    promises = {name for name in dir(RolloutContract) if name.startswith("test")}
    assert {fault.caught_by for fault in FAULTS} == promises - GROUND
