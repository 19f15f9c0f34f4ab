from __future__ import annotations

import pytest
from rl_testing.contracts.runner import run_contract, run_contract_tests


class Contract:
    limit = 3

    @pytest.fixture
    def number(self):
        return 2

    def test_below(self, number):
        assert number < self.limit

    @pytest.mark.parametrize("divisor", [2, 3])
    def test_divides(self, number, divisor):
        assert number % divisor == 0

    def test_optional(self):
        pytest.skip("not asked for")


def test_every_outcome_is_told_with_the_name_of_its_test():
    run = run_contract_tests(Contract)

    assert run.passed == ("test_below", "test_divides[2]")
    assert run.skipped == ("test_optional",)
    assert [failure.test for failure in run.failures] == ["test_divides[3]"]
    assert "2 % 3" in run.failures[0].message


def test_overrides_stand_for_what_an_implementer_writes():
    @pytest.fixture
    def number(self):
        return 6

    assert [failure.test for failure in run_contract(Contract, {"number": number})] == ["test_below"]
    assert run_contract(Contract, {"number": number, "limit": 7}) == []


def test_selection_and_first_failure():
    assert run_contract(Contract, select={"test_below"}) == []
    many = run_contract(Contract, {"limit": 0}, select={"test_below", "test_divides"}, stop_at_first=True)
    assert [failure.test for failure in many] == ["test_below"]


def test_an_error_in_a_fixture_is_a_failure():
    @pytest.fixture
    def number(self):
        raise OSError("no device")

    failures = run_contract(Contract, {"number": number}, select={"test_below"})

    assert "no device" in failures[0].message


def test_a_run_of_nothing_is_no_success():
    with pytest.raises(RuntimeError, match="none ran"):
        run_contract(Contract, select={"test_that_is_not_there"})


def test_a_class_that_cannot_be_collected_is_told():
    def refuse(self):
        raise AssertionError

    with pytest.raises(RuntimeError, match=r"none ran"):
        run_contract(Contract, {"__init__": refuse})
