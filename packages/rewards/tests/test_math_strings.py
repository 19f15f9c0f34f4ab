import pytest
from rl_rewards.math_strings import normalise, same_string, unwrap_text


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (r"\dfrac{1}{2}", r"\frac{1}{2}"),
        (r"\frac12", r"\frac{1}{2}"),
        (r"\frac1{72}", r"\frac{1}{72}"),
        (r"\frac{72}1", r"\frac{72}{1}"),
        ("1/2", r"\frac{1}{2}"),
        ("-1/2", r"-\frac{1}{2}"),
        (r"\sqrt2", r"\sqrt{2}"),
        (r"\left( 1, 2 \right)", "(1,2)"),
        ("12,345,678", "12345678"),
        ("12 345", "12345"),
        (r"12{,}345", "12345"),
        ("12 34", "12_ 34"),
        ("1,23", "1,23"),
        (".5", "0.5"),
        ("7.", "7"),
        (r"90^{\circ}", "90"),
        (r"10\%", "10"),
        (r"\$5", "5"),
        ("x = 5", "5"),
        ("f(x)=x", "x"),
        ("x=y=5", "x=y=5"),
        ("ab=5", "ab=5"),
        (r"\text{The Cat}", "thecat"),
        ("X", "X"),
        ("(A)", "A"),
        (r"5\text{ cm}^2", "5"),
        (r"3\text{ cm}, 4\text{ cm}", "3,4"),
        (r"12\text{ R }3", "12R3"),
        (r"11{:}30\text{ AM}", "11:30AM"),
        (r"x \le 3", r"x\leq3"),
        ("", ""),
    ],
)
def test_normalise(answer, expected):
    assert normalise(answer) == expected


def test_braces_are_kept_apart():
    assert not same_string(r"\frac{1}{23}", r"\frac{12}{3}")
    assert same_string(r"\frac{1}{23}", r"\tfrac{1}{23}")


def test_nothing_is_the_same_as_nothing():
    assert not same_string("", "")
    assert not same_string("$", r"\left")


def test_text_is_unwrapped_with_its_braces_counted():
    assert unwrap_text(r"\text{a {b} c} d") == "a {b} c d"
    assert unwrap_text(r"\text{a") == r"\text{a"
    assert unwrap_text(r"\mathrm{\text{a}}") == r"\text{a}"
