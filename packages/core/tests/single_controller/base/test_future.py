import pytest
from rl_core.errors import DeadlineError
from rl_core.single_controller.base.future import CollectedFuture, WorkerFuture, wait_all


class Answer(WorkerFuture):
    """A result that is there, or never comes; remembers how long others waited."""

    def __init__(self, value=None, *, comes=True):
        self.value, self.comes, self.waits = value, comes, []

    def result(self, timeout=None):
        self.waits.append(timeout)
        if not self.comes:
            raise DeadlineError("it did not come")
        return self.value

    def done(self):
        return self.comes


def test_results_are_in_order_and_collected():
    answers = [Answer(1), Answer(2), Answer(3)]
    assert wait_all(answers) == [1, 2, 3]
    future = CollectedFuture(sum, answers)
    assert future.done()
    assert future.result() == 6


def test_all_of_them_share_the_time():
    answers = [Answer(1), Answer(2)]
    wait_all(answers, 5.0)
    assert 0.0 < answers[1].waits[0] <= answers[0].waits[0] <= 5.0
    wait_all(answers, 0.0)
    assert answers[1].waits[1] == 0.0


def test_without_a_limit_the_groups_deadline_holds():
    answer = Answer(1)
    CollectedFuture(sum, [answer]).result()
    assert answer.waits == [None]


def test_one_that_is_missing_is_missing():
    future = CollectedFuture(sum, [Answer(1), Answer(comes=False)])
    assert not future.done()
    with pytest.raises(DeadlineError):
        future.result(0.1)
