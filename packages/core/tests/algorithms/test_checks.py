import pytest
import torch
from rl_core.algorithms.checks import require_mask, require_same_shape
from rl_core.errors import ShapeError


def test_a_bool_mask_of_rank_two_passes():
    require_mask(torch.zeros(2, 3, dtype=torch.bool))


@pytest.mark.parametrize("mask", [torch.zeros(3, dtype=torch.bool), torch.zeros(1, 2, 3, dtype=torch.bool)])
def test_another_rank_is_refused_with_its_shape(mask):
    with pytest.raises(ShapeError, match=r"my_mask must have rank 2.*\(.*3,?\)"):
        require_mask(mask, "my_mask")


def test_an_integer_mask_is_refused_with_its_dtype():
    with pytest.raises(ShapeError, match=r"torch\.int64.*\.bool\(\)"):
        require_mask(torch.ones(2, 3, dtype=torch.int64))


def test_different_shapes_are_refused_with_both():
    with pytest.raises(ShapeError, match=r"values \(2, 3\) and response_mask \(2, 4\)"):
        require_same_shape("values", torch.zeros(2, 3), "response_mask", torch.zeros(2, 4))


def test_broadcastable_shapes_are_refused_too():
    with pytest.raises(ShapeError):
        require_same_shape("values", torch.zeros(2, 1), "response_mask", torch.zeros(2, 4))
