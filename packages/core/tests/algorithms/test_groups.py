import numpy as np
import pytest
import torch
from rl_core.algorithms.groups import group_index, group_statistics
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
