from __future__ import annotations

import pytest
from rl_testing.contracts.runner import run_contract
from rl_testing.contracts.suite import ContractSuite, unexplained_overrides


class Contract(ContractSuite):
    __module__ = "rl_testing.contracts.example"

    def test_one(self):
        pass

    def test_two(self):
        pass


class Untouched(Contract):
    def test_of_my_own(self):
        pass


class Deletes(Contract):
    test_one = None


class Replaces(Contract):
    def test_two(self):
        pass


class ReplacesWithEmptyReason(Contract):
    @pytest.mark.xfail(reason=" ")
    def test_two(self):
        pass


class Explains(Contract):
    @pytest.mark.xfail(reason="this engine rounds to bfloat16")
    def test_two(self):
        raise AssertionError


def test_untouched_suite_has_nothing_to_explain():
    assert unexplained_overrides(Untouched, (Contract,)) == []


@pytest.mark.parametrize("suite", [Deletes, Replaces, ReplacesWithEmptyReason])
def test_deleting_or_replacing_a_promise_fails_the_suite(suite):
    assert [failure.test for failure in run_contract(suite)] == ["test_no_promise_is_taken_out"]


def test_a_mark_with_a_reason_is_an_explanation():
    assert run_contract(Explains) == []


def test_the_guard_itself_cannot_be_taken_out():
    with pytest.raises(TypeError, match="Unguarded replaces test_no_promise_is_taken_out"):
        type("Unguarded", (Replaces,), {"test_no_promise_is_taken_out": None})
