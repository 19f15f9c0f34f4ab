import pytest
from rl_rewards.math_units import different_units, unit_of


@pytest.mark.parametrize(
    ("answer", "unit"),
    [
        (r"5\text{ cm}", ("cm", "1")),
        ("5 centimeters", ("cm", "1")),
        ("12 inches.", ("in", "1")),
        (r"5\text{ cm}^2", ("cm", "2")),
        (r"5\,\mathrm{m}^{3}", ("m", "3")),
        (r"\frac{1}{2}\text{ m}", ("m", "1")),
        (r"5\text{ apples}", None),
        ("5m", None),
        ("5", None),
        ("cm", None),
        ("", None),
        ("1" * 5_000, None),
    ],
)
def test_unit_of(answer, unit):
    assert unit_of(answer) == unit


def test_only_two_known_units_can_differ():
    assert different_units(r"5\text{ cm}", r"5\text{ m}")
    assert different_units(r"5\text{ cm}^2", r"5\text{ cm}")
    assert not different_units(r"5\text{ cm}", "5 centimetres")
    assert not different_units(r"5\text{ cm}", "5")
    assert not different_units(r"5\text{ cm}", r"5\text{ apples}")


def test_a_letter_is_a_unit_beside_another_unit():
    assert different_units("5 cm", "5 m")
    assert different_units("5 m", r"5\text{ cm}")
    assert not different_units("5 metres", "5 m")
    assert not different_units("5m", "5s")  # variables, both
    assert not different_units("5m", "5")
