import pytest
from rl_demo.problems import NUM_HELD_OUT, NUM_RL, NUM_SFT, Problem, split_problems


def numbers(part):
    """What each problem adds, whatever the order."""
    return {frozenset((problem.left, problem.right)) for problem in part}


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_no_problem_is_in_two_parts_or_twice_in_one(seed):
    split = split_problems(seed)
    parts = [*split.held_out, *split.sft, *split.rl]
    assert len(set(parts)) == len(parts)
    assert [len(split.held_out), len(split.sft), len(split.rl)] == [NUM_HELD_OUT, NUM_SFT, NUM_RL] == [300, 1200, 600]


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_the_other_order_of_a_problem_is_in_the_same_part(seed):
    split = split_problems(seed)
    held_out, sft, rl = (numbers(part) for part in (split.held_out, split.sft, split.rl))
    assert held_out.isdisjoint(sft | rl)
    assert sft.isdisjoint(rl)
    for part in (split.held_out, split.sft, split.rl):
        assert {Problem(problem.right, problem.left) for problem in part} == set(part)


def test_all_sums_that_need_a_carry_are_asked():
    split = split_problems(1)
    carries = {problem for part in (split.held_out, split.sft, split.rl) for problem in part if problem.needs_carry}
    assert carries == {
        Problem(left, right)
        for left in range(10, 90)
        for right in range(10, 90)
        if left + right < 100 and left % 10 + right % 10 >= 10
    }


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
