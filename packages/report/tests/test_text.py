import pytest
from rl_report.text import count, duration, gib, number, percent, plain, printable, short


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.0, "1"),
        (0.0, "0"),
        (0.123456, "0.1235"),
        (1e-7, "1e-07"),
        (1234567.0, "1.235e+06"),
        (-2.5, "-2.5"),
        (None, "–"),
    ],
)
def test_number(value, expected):
    assert number(value) == expected


def test_short():
    assert (short(0.99609), short(1234.6), short(2.0)) == ("0.996", "1230", "2")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0, "0 ms"),
        (0.0012, "1.2 ms"),
        (0.42, "420 ms"),
        (0.9996, "1.0 s"),
        (12.34, "12.3 s"),
        (59.96, "1 min"),
        (250, "4 min 10 s"),
        (7500, "2 h 5 min"),
        (7200, "2 h"),
    ],
)
def test_duration(seconds, expected):
    assert duration(seconds) == expected


def test_shares_sizes_and_counts():
    assert [percent(share) for share in (0, 0.004, 0.126, 1)] == ["0%", "<1%", "13%", "100%"]
    assert [gib(value) for value in (0.25, 0.9999, 3.14159)] == ["256 MiB", "1.00 GiB", "3.14 GiB"]
    assert [count(amount, "step") for amount in (0, 1, 2)] == ["0 steps", "1 step", "2 steps"]


def test_plain():
    assert [plain(value) for value in (None, True, 0.5, "a\x07b", [1])] == ["–", "yes", "0.5", "a�b", "[1]"]


def test_printable_keeps_letters_of_every_language_and_line_ends():
    assert printable("día 数学 🙂\n\tx\r\x1b[1m") == "día 数学 🙂\n\tx��[1m"
    assert printable("a\u202eb\u2066c 👩\u200d🔬") == "a�b�c 👩\u200d🔬"
