import inspect
import re

import pytest
import reasoning_gym
from reasoning_gym.factory import DATASETS
from rl_rewards.reasoning_gym import compute_score
from rl_rewards.reasoning_gym_guard import EVALUATED, is_safe

HARMLESS = {
    "number_sorting": "the right answer of the row",
    "bitwise_arithmetic": "the problem of the row",
}
"""Data sets whose scorers run something else than a response -> what."""


def entry(name):
    return reasoning_gym.create_dataset(name, size=1, seed=5)[0]


def score(name, answer, item=None):
    item = entry(name) if item is None else item
    return compute_score(
        data_source=f"reasoning_gym/{name}", solution_str=f"<answer>{answer}</answer>", ground_truth=item
    )


@pytest.mark.parametrize("name", EVALUATED)
@pytest.mark.parametrize(
    "attack",
    [
        "__import__('pathlib').Path({file!r}).touch()",
        "[__import__('pathlib').Path({file!r}).touch()]",
        "1 + open({file!r}, 'w').write('x')",
        "sin(open({file!r}, 'w'))",
        "S('open(\\'{file}\\', \\'w\\')')",
        "x.__class__.__base__.__subclasses__() or open({file!r}, 'w')",
        "(lambda: open({file!r}, 'w'))()",
    ],
)
def test_no_answer_is_run(name, attack, tmp_path):
    file = tmp_path / "made"
    assert score(name, attack.format(file=str(file))) == 0.0
    assert not file.exists()


@pytest.mark.parametrize("name", EVALUATED)
def test_right_answers_get_full_marks(name):
    dataset = reasoning_gym.create_dataset(name, size=20, seed=5)
    assert [score(name, item["answer"], item) for item in dataset] == [1.0] * 20


def test_a_list_where_words_were_asked_for_gets_what_the_scorer_gives():
    item = entry("string_insertion")
    assert score("string_insertion", list(item["answer"]), item) == 0.1
    item = entry("n_queens")
    assert score("n_queens", [row.split() for row in item["answer"].split("\n")], item) == 0.5


@pytest.mark.parametrize(
    "answer",
    [
        "9**9**9**9",
        "((9**99)**99)**99",
        "x**(9*9*9)",
        "gamma(x)",
        "(x",
        "x!",
        "x.y",
        "'x'**'y'",
        "x**'y'",
        "-" * 999,
        "True",
    ],
)
def test_what_would_take_for_ever_or_is_no_formula_is_wrong(answer):
    assert not is_safe("simple_integration", answer, entry("simple_integration"))
    assert score("simple_integration", answer) == 0.0


def test_a_formula_may_be_written_in_another_way():
    item = {"answer": "x**2/2 + C", "metadata": {"variable": "x", "integrand": "x"}}
    for answer in ("0.5*x**2 + C", "x*x/2", "C - -x**(1 + 1)/2", "exp(2*log(x))/2 + pi"):
        assert score("simple_integration", answer, item) == 1.0


def test_the_question_is_no_answer():
    """Its derivative is the integrand, which is all that the scorer looks at."""
    item = {"answer": "x**2/2 + C", "metadata": {"variable": "x", "integrand": "x"}}
    for answer in ("Integral(x, x)", "integrate(x, x)"):
        assert score("intermediate_integration", answer, item) == 0.0


def test_puzzle24_wants_the_numbers_of_the_puzzle():
    item = {"answer": "8*(5*1 - 2)", "metadata": {"numbers": [8, 5, 1, 2]}}
    assert score("puzzle24", "(5*1 - 2)*8", item) == 1.0
    assert score("puzzle24", "6*4*1*1", item) == 0.0


def test_no_other_scorer_runs_what_it_is_given():
    """A data set of a later release that does must be added to the guard."""
    runs = re.compile(r"(?<![\w.])(?:eval|exec|sympify)\(|parse_expr\(")
    found = {
        name
        for name, (dataset, _) in DATASETS.items()
        if runs.search(inspect.getsource(inspect.getmodule(dataset.score_answer)))
        and runs.search(inspect.getsource(dataset.score_answer))
    }
    assert found - set(HARMLESS) == set(EVALUATED)
