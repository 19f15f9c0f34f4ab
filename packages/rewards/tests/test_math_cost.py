import pytest
from math_verify import LatexExtractionConfig, parse
from rl_rewards.math_cost import is_cheap, is_cheap_text
from sympy import Matrix, factorial


def parsed(latex):
    return parse(f"${latex}$", [LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=None)[0]


@pytest.mark.parametrize(
    "latex",
    [
        "2^{100}",
        "2023^{500}",
        "(x+1)^{10}",
        "x^{2023}",
        "5!",
        r"\sqrt[3]{2}",
        "e^{x}",
        r"\sin(x)+\cos(x)",
        "2^{2^{3}}",
        "1.5",
    ],
)
def test_answers_of_problems_are_cheap(latex):
    assert is_cheap_text(latex)
    assert is_cheap(parsed(latex))


@pytest.mark.parametrize(
    "latex",
    [
        "9^{9^{9}}",
        "10^{-10^{10}}",
        "100000!",
        "5!!!!",
        "(x+y+1)^{5000}",
        "(a+b+c+d)^{9}",
        r"\sqrt[100000]{2}",
        r"(\sin(x))^{20}",
        r"\begin{pmatrix}9^{9^{9}}\\1\end{pmatrix}",
    ],
)
def test_what_would_take_long_is_not(latex):
    assert is_cheap_text(latex)
    assert not is_cheap(parsed(latex))


@pytest.mark.parametrize(
    "latex",
    [
        r"\sum_{k=1}^{9}k",
        r"\int_0^1 x dx",
        r"\prod k",
        r"\lim_{x\to 0}x",
        r"\frac{d}{dx}x",
        r"\binom{10^9}{5}",
        "1e99999",
        r"{50000 \choose 20000}",
        "x" * 401,
        "(" * 30 + ")" * 30,
        "-" * 6 + "1",
    ],
)
def test_what_is_not_even_read(latex):
    assert not is_cheap_text(latex)


def test_small_ones_of_these_are_read():
    assert is_cheap_text(r"\binom{10}{5}")
    assert is_cheap_text(r"\frac{d_1}{2}")
    assert not is_cheap_text(r"\frac{dy}{dx}")


def test_matrices_entry_by_entry():
    assert is_cheap(Matrix([[1, 2], [3, 4]]))
    assert not is_cheap(Matrix([[1, factorial(10**6, evaluate=False)]]))
