import numpy as np
import pytest
import torch
from rl_core.algorithms.groups import (
    above_baseline,
    group_index,
    group_statistics,
    leave_one_out_mean,
    relative_scores,
    require_uid,
)
from rl_core.errors import DataError


@pytest.mark.parametrize("dtype", [object, "U1"])
def test_group_index_numbers_equal_names_alike(dtype):
    index, num_groups = group_index(np.array(["b", "a", "b", "c"], dtype=dtype))
    assert num_groups == 3
    assert index[0] == index[2]
    assert len({index[0], index[1], index[3]}) == 3


def test_group_index_of_no_rows():
    index, num_groups = group_index(np.array([], dtype=object))
    assert index.shape == (0,)
    assert num_groups == 0


def test_mixed_names_are_refused_with_their_types():
    with pytest.raises(DataError, match="NoneType, str"):
        group_index(np.array(["a", None], dtype=object))


def test_statistics_of_the_usable_rows_told_to_every_row():
    scores = torch.tensor([1.0, 5.0, 3.0, 99.0, 7.0])
    usable = torch.tensor([True, True, True, False, False])
    group = group_statistics(scores, usable, np.array(["a", "b", "a", "a", "c"], dtype=object))
    assert group.count.tolist() == [2, 1, 2, 2, 0]
    assert group.mean.tolist() == [2.0, 5.0, 2.0, 2.0, 0.0]
    assert group.std.tolist() == pytest.approx([2**0.5, 0.0, 2**0.5, 2**0.5, 0.0])
    assert group.varies.tolist() == [True, False, True, True, False]


def test_equal_scores_never_vary_whatever_their_mean_rounds_to():
    scores = torch.full((3,), 0.1, dtype=torch.float64)
    assert scores.sum().item() / 3 != 0.1
    group = group_statistics(scores, torch.ones(3).bool(), np.array([1, 1, 1]))
    assert group.varies.tolist() == [False, False, False]


def test_a_missing_uid_column_is_named():
    with pytest.raises(DataError, match="opo compares the responses to one prompt"):
        require_uid(None, "opo")


def test_scores_above_a_baseline():
    scores, usable = torch.tensor([1.0, 3.0, 0.1, 0.1, 7.0, 9.0]), torch.tensor([1, 1, 1, 1, 1, 0]).bool()
    group = group_statistics(scores, usable, np.array(list("aabbcc"), dtype=object))
    baseline = torch.full((6,), 0.5, dtype=torch.float64)
    # Alone (c): the score itself; equal scores (b): exactly 0, whatever the baseline rounds to.
    assert above_baseline(scores, baseline, usable, group).tolist() == [0.5, 2.5, 0.0, 0.0, 7.0, 0.0]


@pytest.mark.parametrize(("by_std", "expected"), [(False, [-1.0, 1.0, 5.0]), (True, [-0.707106, 0.707106, 4.999995])])
def test_relative_scores(by_std, expected):
    scores, uid = torch.tensor([1.0, 3.0, 5.0]), np.array(list("aab"), dtype=object)
    relative = relative_scores(scores, torch.ones(3).bool(), uid, by_std=by_std)
    assert relative.tolist() == pytest.approx(expected, abs=1e-6)


def test_leave_one_out_mean_is_that_of_the_other_usable_rows():
    scores, usable = torch.tensor([1.0, 3.0, 8.0, 99.0, 5.0]), torch.tensor([1, 1, 1, 0, 1]).bool()
    group = group_statistics(scores, usable, np.array(list("aaaab"), dtype=object))
    assert leave_one_out_mean(scores, group)[usable].tolist() == [5.5, 4.5, 2.0, 0.0]
