import pytest
import torch
from rl_core.algorithms.policy_losses import ratio
from rl_core.errors import ConfigError

NAN = float("nan")


def test_the_log_ratio_is_clamped_masked_and_exactly_zero_where_nothing_moved(inputs):
    x = torch.tensor([[-1.0, 30.0, -90.0, NAN]], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, True, True, False]])
    found = ratio.log_ratio(inputs(x, [-1.0, 0.0, 0.0, 0.0], [1.0] * 4, mask))
    assert found.tolist() == [[0.0, 20.0, -20.0, 0.0]]
    found.sum().backward()
    assert x.grad.tolist() == [[1.0, 0.0, 0.0, 0.0]]


def test_the_larger_of_the_plain_and_the_clipped_loss():
    ratios = torch.tensor([1.1, 1.5, 0.5, 1.5, 0.5])
    loss, clipped = ratio.clipped_surrogate(ratios, torch.tensor([2.0, 2.0, 2.0, -2.0, -2.0]), 0.2, 0.3)
    assert loss.tolist() == pytest.approx([-2.2, -2.6, -1.0, 3.0, 1.6])
    assert clipped.tolist() == [False, True, False, False, True]


def test_the_gradient_stays_whole_where_both_branches_are_equal():
    """``maximum`` shares the gradient between equal branches; both must have it."""
    x = torch.tensor([1.1, 1.0], requires_grad=True)
    loss, _ = ratio.clipped_surrogate(x, torch.tensor([2.0, -2.0]), 0.2, 0.2)
    loss.sum().backward()
    assert x.grad.tolist() == [-2.0, 2.0]


def test_bounds_come_from_one_key_or_two(actor):
    assert ratio.clip_bounds(actor()) == (0.2, 0.2)
    assert ratio.clip_bounds(actor(clip_ratio_high=0.28)) == (0.2, 0.28)
    assert ratio.clip_bounds(actor(clip_ratio_low=10.0)) == (10.0, 0.2)
    assert ratio.clip_bounds(actor(clip_ratio_low=0.0), low_limit=1.0) == (0.0, 0.2)


@pytest.mark.parametrize(
    ("changes", "limit", "match"),
    [
        ({"clip_ratio": -0.1}, 1.0, r"clip_ratio_low in \[0, 1\].*found -0.1 and -0.1"),
        ({"clip_ratio_low": 1.5}, 1.0, "found 1.5 and 0.2"),
        ({"clip_ratio_low": -1.5}, float("inf"), r"clip_ratio_low >= 0 .*found -1.5"),
        ({"clip_ratio_high": NAN}, 1.0, "found 0.2 and nan"),
    ],
)
def test_bounds_that_cannot_work_are_refused(changes, limit, match, actor):
    with pytest.raises(ConfigError, match=match):
        ratio.clip_bounds(actor(**changes), low_limit=limit)


@pytest.mark.parametrize("cap", [1.0, NAN, -3.0])
def test_a_cap_that_cannot_work_is_refused(cap, actor):
    with pytest.raises(ConfigError, match="clip_ratio_c"):
        ratio.ratio_cap(actor(clip_ratio_c=cap))
