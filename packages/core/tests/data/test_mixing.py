import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rl_core.data.mixing import Mixture, mixture_of
from rl_core.errors import ConfigError


def test_two_to_one_by_hand():
    # due: source 0 at 0.75, 2.25, 3.75, 5.25, 6.75 ...; source 1 at 1.5, 4.5, 7.5 ...
    source, number = Mixture((5, 4), (2.0, 1.0)).sources(0, 9)
    assert source.tolist() == [0, 1, 0, 0, 1, 0, 0, 1, 0]
    assert number.tolist() == [0, 0, 1, 2, 1, 3, 4, 2, 5]


def test_rows_go_round_in_the_order_of_the_files():
    rows = Mixture((2, 3), (1.0, 1.0)).rows(0, 8, shuffle=False, seed=0)
    assert rows.tolist() == [0, 2, 1, 3, 0, 4, 1, 2]


@given(
    weights=st.lists(st.floats(0.01, 100), min_size=1, max_size=5),
    first=st.integers(0, 3000),
    count=st.integers(1, 60),
)
def test_any_stretch_can_be_had_alone_and_keeps_the_proportions(weights, first, count):
    mixture = Mixture(tuple(range(3, 3 + len(weights))), tuple(weights))
    source, number = mixture.sources(0, first + count)
    assert [part[first:].tolist() for part in (source, number)] == [p.tolist() for p in mixture.sources(first, count)]
    taken = np.bincount(source, minlength=len(weights))
    assert (abs(taken - mixture.shares * (first + count)) <= len(weights)).all()
    for index in range(len(weights)):
        assert number[source == index].tolist() == list(range(taken[index])), "no draw is skipped or taken twice"


def test_each_pass_of_each_source_has_an_order_of_its_own_from_the_seed():
    mixture = Mixture((20, 20), (1.0, 1.0))
    rows = mixture.rows(0, 80, shuffle=True, seed=3)
    assert (rows == mixture.rows(0, 80, shuffle=True, seed=3)).all()
    assert (rows != mixture.rows(0, 80, shuffle=True, seed=4)).any()
    first, second = rows[rows < 20][:20], rows[rows < 20][20:]
    assert sorted(first) == sorted(second) == list(range(20))
    assert first.tolist() != second.tolist()
    assert first.tolist() != (rows[rows >= 20][:20] - 20).tolist()


@pytest.mark.parametrize(
    ("weights", "sizes", "message"),
    [
        ([1], (1, 1), "1 numbers for 2 files"),
        ([1, 0], (1, 1), "gives b the weight 0; it must be a number above 0"),
        ([1, float("inf")], (1, 1), "gives b the weight inf"),
        ([1, 2], (1, 0), "none of its rows is left"),
    ],
)
def test_weights_that_make_no_mixture(weights, sizes, message):
    with pytest.raises(ConfigError, match=message):
        mixture_of(["a", "b"], sizes, weights)
