"""What all contract suites share: nobody takes a promise out of one without saying why.

A suite is a class of pytest tests. An implementer subclasses it, overrides what the suite lists under "override these",
and gets every test. A test that an engine cannot pass is kept and marked::

    class TestMine(TrainingEngineContract):
        @pytest.mark.xfail(reason="bfloat16 gradients, see issue 7")
        def test_gradients_are_sums(self, ...): ...
"""

from __future__ import annotations

from typing import Any


def unexplained_overrides(suite: type, contracts: tuple[type, ...]) -> list[str]:
    """Tests of ``contracts`` that ``suite`` deletes or replaces without an ``xfail`` or ``skip`` that has a reason.

    Args:
        suite: the implementer's class.
        contracts: classes whose word counts; the tests they define may not change below them.

    Returns:
        ``"name: what is wrong"`` for each, sorted by name.
    """
    problems: dict[str, str] = {}
    for contract in contracts:
        for name, original in vars(contract).items():
            if not name.startswith("test") or not callable(original):
                continue
            found = getattr(suite, name, None)
            if found is original:
                continue
            if not callable(found):
                problems[name] = "deleted"
            elif not _has_reason(found):
                problems[name] = "overridden without a mark that gives a reason"
    return [f"{name}: {problem}" for name, problem in sorted(problems.items())]


def _has_reason(test: Any) -> bool:
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name in ("xfail", "skip")]
    return any(str(mark.kwargs.get("reason", "")).strip() for mark in marks)


class ContractSuite:
    """Base of every contract suite."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse a subclass that takes out the guard itself."""
        super().__init_subclass__(**options)
        if cls.test_no_promise_is_taken_out is not ContractSuite.test_no_promise_is_taken_out:
            msg = (
                f"{cls.__name__} replaces test_no_promise_is_taken_out, the guard of every contract suite; leave it in"
            )
            raise TypeError(msg)

    def test_no_promise_is_taken_out(self) -> None:
        """The suite runs as it was written.

        If this fails: the subclass deletes or replaces a test of the contract. Mark it with
        ``pytest.mark.xfail(reason=...)`` and keep it, so that readers see which promise is not kept, and why.
        """
        contracts = tuple(
            parent
            for parent in type(self).__mro__
            if issubclass(parent, ContractSuite) and parent.__module__.startswith("rl_testing.contracts")
        )
        assert unexplained_overrides(type(self), contracts) == []
