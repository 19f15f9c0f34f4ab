from __future__ import annotations

import pytest
from rl_testing.contracts.columns import ColumnsContract
from rl_testing.contracts.runner import run_contract
from rl_testing.faults.columns import FAULTS


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_suite_catches_it(fault):
    failures = run_contract(ColumnsContract, fault.overrides, select=[fault.caught_by])
    assert {failure.test.split("[")[0] for failure in failures} == {fault.caught_by}


def test_every_promise_has_its_fault():
    assert {fault.caught_by for fault in FAULTS} == {name for name in vars(ColumnsContract) if name.startswith("test")}
