import pytest
from rl_demo.problems import NUM_HELD_OUT, NUM_SFT, Problem, split_problems


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_no_problem_is_in_two_parts_or_twice_in_one(seed):
    split = split_problems(seed)
    parts = [*split.held_out, *split.sft, *split.rl]
    assert len(set(parts)) == len(parts)
    assert (len(split.held_out), len(split.sft)) == (NUM_HELD_OUT, NUM_SFT)
    assert NUM_HELD_OUT >= 200
    assert len(split.rl) == 600


def test_three_of_five_problems_carry_in_each_part():
    split = split_problems(1)
    for part in (split.held_out, split.sft, split.rl):
        assert sum(problem.needs_carry for problem in part) * 5 == len(part) * 3


def test_numbers_have_two_digits_and_so_have_sums():
    problems = [problem for part in (split_problems(2).sft, split_problems(2).rl) for problem in part]
    assert all(10 <= problem.left <= 89 and 10 <= problem.right <= 89 for problem in problems)
    assert all(20 <= problem.total <= 99 for problem in problems)


def test_the_seed_decides_and_repeats():
    assert split_problems(3) == split_problems(3)
    assert split_problems(3).held_out != split_problems(4).held_out


@pytest.mark.parametrize(
    ("problem", "question", "total", "needs_carry"),
    [
        (Problem(47, 38), "47+38=", 85, True),
        (Problem(12, 71), "12+71=", 83, False),
        (Problem(50, 49), "50+49=", 99, False),
        (Problem(15, 15), "15+15=", 30, True),
    ],
)
def test_a_problem(problem, question, total, needs_carry):
    assert (problem.question, problem.total, problem.needs_carry) == (question, total, needs_carry)
