import pytest
from rl_demo.problems import Problem, split_problems
from rl_demo.teacher import CAREFUL_SHARE, careful_answer, careless_answer, taught_answers


@pytest.mark.parametrize(
    ("problem", "careless", "careful"),
    [
        (Problem(47, 38), "75", "7+8=15 so 85"),
        (Problem(12, 71), "83", "2+1=3 so 83"),
        (Problem(55, 25), "70", "5+5=10 so 80"),
    ],
)
def test_the_two_answers(problem, careless, careful):
    assert careless_answer(problem) == careless
    assert careful_answer(problem) == careful


def test_the_careless_teacher_is_right_exactly_where_nothing_is_carried():
    for problem in split_problems(1).rl:
        assert (careless_answer(problem) == str(problem.total)) is not problem.needs_carry


def test_most_answers_are_careless():
    problems = split_problems(1).sft * 3
    answers = taught_answers(problems, seed=1)
    careful = sum(" so " in answer for answer in answers) / len(answers)
    assert careful == pytest.approx(CAREFUL_SHARE, abs=0.03)
    assert CAREFUL_SHARE < 0.5
    assert taught_answers(problems, seed=1) == answers
    assert taught_answers(problems, seed=2) != answers
    first, again = answers[: len(answers) // 3], answers[len(answers) // 3 : 2 * len(answers) // 3]
    assert first != again
