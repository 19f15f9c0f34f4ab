from __future__ import annotations

import re

import pytest
from rl_testing.contracts.engine import TrainingEngineContract
from rl_testing.contracts.runner import run_contract, run_contract_tests
from rl_testing.fakes.engine_sections import TinyEngineContract
from rl_testing.fakes.pipeline_engine import PipelineEngine
from rl_testing.fakes.plain_engine import PlainEngine
from rl_testing.faults.engine import FAULTS

ONE_TEST_OF_EACH_PART = {
    "test_only_collecting_ranks_answer",
    "test_gradients_of_tied_weights_count_both_uses",
    "test_the_stream_follows_the_manifest",
    "test_states_leave_and_come_back",
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_the_suite_catches_it(fault):
    failures = run_contract(TinyEngineContract, fault.overrides, select=[fault.caught_by], stop_at_first=True)

    assert [failure.test.split("[")[0] for failure in failures] == [fault.caught_by]
    # A fault that merely crashes would prove nothing about the suite.
    expected = "DeadlineError" if fault.name == "empty-rank-skips-a-collective" else "AssertionError|assert "
    assert re.search(rf"^E +(rl_core\.errors\.)?({expected})", failures[0].message, re.MULTILINE), failures[0].message


def test_every_fault_breaks_a_promise_of_its_own():
    assert len({fault.promise for fault in FAULTS.values()}) == len(FAULTS)


def test_every_test_of_the_suite_catches_a_fault():
    tests = {name for name in dir(TrainingEngineContract) if name.startswith("test_")}

    assert tests - {"test_no_promise_is_taken_out"} == {fault.caught_by for fault in FAULTS.values()}


@pytest.mark.parametrize("engine", [PlainEngine, PipelineEngine])
def test_the_same_runner_passes_good_engines(engine):
    overrides = {"engine_class": engine, "world_sizes": (2,)}

    run = run_contract_tests(TinyEngineContract, overrides, select=ONE_TEST_OF_EACH_PART)

    assert run.failures == run.skipped == ()
    assert {name.split("[")[0] for name in run.passed} == ONE_TEST_OF_EACH_PART
