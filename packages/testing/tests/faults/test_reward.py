from __future__ import annotations

import pytest
from rl_testing.contracts.reward import RewardCase, RewardContract
from rl_testing.contracts.reward_manager import RewardManagerContract, RewardManagerDeadlineContract
from rl_testing.contracts.runner import run_contract
from rl_testing.faults.reward import FUNCTION_FAULTS, MANAGER_FAULTS


class Judge(RewardContract):
    cases = (RewardCase("abca", "a", 0.5), RewardCase("aab", None, 2 / 3, extra_info={"index": 1}))


class ExactJudge(RewardContract):
    cases = (RewardCase("4", "4", 1.0), RewardCase("5", "4", 0.0))


@pytest.mark.parametrize("fault", FUNCTION_FAULTS, ids=lambda fault: fault.name)
def test_the_suite_catches_a_function(fault):
    failures = run_contract(
        ExactJudge if fault.name == "logs-arrays" else Judge, fault.overrides, select=[fault.caught_by]
    )
    assert {failure.test.split("[")[0] for failure in failures} == {fault.caught_by}


@pytest.mark.parametrize("fault", MANAGER_FAULTS, ids=lambda fault: fault.name)
def test_the_suite_catches_a_manager(fault):
    failures = run_contract(RewardManagerDeadlineContract, fault.overrides, select=[fault.caught_by])
    assert {failure.test.split("[")[0] for failure in failures} == {fault.caught_by}


def test_every_promise_has_its_fault():
    caught = {fault.caught_by for fault in FUNCTION_FAULTS}
    assert caught == {name for name in vars(RewardContract) if name.startswith("test")}
    caught = {fault.caught_by for fault in MANAGER_FAULTS}
    promises = {**vars(RewardManagerContract), **vars(RewardManagerDeadlineContract)}
    assert caught == {name for name in promises if name.startswith("test")}
