import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rl_core.algorithms.rollout_correction.moments import Moments
from rl_core.errors import ShapeError

COUNTED = torch.tensor([True, True, True, True, False])


def moments(*parts):
    result = Moments()
    for values, counted in parts:
        result.add(torch.tensor(values, dtype=torch.float64), torch.tensor(counted))
    return result


@pytest.mark.parametrize(
    ("weights", "share"), [([2, 2, 2, 2, 9], 1.0), ([0, 0, 5, 0, 9], 0.25), ([0, 0, 0, 0, float("nan")], 0.0)]
)
def test_effective_sample_size_by_hand(weights, share):
    assert moments((weights, COUNTED.tolist())).effective_sample_size == share


def test_spread_by_hand():
    assert moments(([1.0, 3.0, 9.0], [True, True, False])).spread == 1.0
    assert moments(([1.0, 3.0], [True, False])).spread == 0.0
    # 0, 4 | 2, 6: mean 3, deviations 3, 1, 1, 3.
    both = moments(([0.0, 4.0], [True, True]), ([9.0], [False]), ([2.0, 6.0], [True, True]))
    assert (both.count, both.mean, both.spread) == (4, 3.0, pytest.approx(5**0.5))


def test_nothing_counted():
    nothing = moments(([1.0], [False]))
    assert (nothing.count, nothing.mean, nothing.spread, nothing.effective_sample_size) == (0, 0.0, 0.0, 0.0)


def test_another_shape_is_refused():
    with pytest.raises(ShapeError):
        Moments().add(torch.zeros(3, dtype=torch.float64), torch.ones(2, dtype=torch.bool))


@given(st.lists(st.tuples(st.floats(-100, 100), st.booleans()), min_size=2, max_size=12), st.integers(1, 11))
def test_parts_come_to_the_whole(entries, cut):
    values, counted = [value for value, _ in entries], [flag for _, flag in entries]
    found = moments((values[:cut], counted[:cut]), (values[cut:], counted[cut:]))
    kept = torch.tensor([value for value, flag in entries if flag], dtype=torch.float64)
    if len(kept) > 1:
        assert found.spread == pytest.approx(float(kept.std(correction=0)), abs=1e-9)
        squares = float(kept.square().sum())
        if squares > 1e-6:
            assert found.effective_sample_size == pytest.approx(
                float(kept.sum()) ** 2 / (squares * len(kept)), abs=1e-9
            )
