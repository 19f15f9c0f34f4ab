import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.algorithms.inputs import PrepareInputs
from rl_core.algorithms.policy_losses.clip_cov import choose_clip_cov, clip_cov
from rl_core.errors import ConfigError, DataError

ALL = {"clip_cov_ratio": 1.0, "clip_cov_lb": 0.5, "clip_cov_ub": 3.0}


def step(seed=0, rows=4, width=8, number=0, **changes):
    rng = torch.Generator().manual_seed(seed)
    old, advantages = torch.randn(2, rows, width, dtype=torch.float64, generator=rng) * 2
    columns = {"old_log_prob": old, "advantages": advantages}
    columns["response_mask"] = torch.rand(rows, width, generator=rng) < 0.8
    return PrepareInputs(**columns | changes, seed=(7, number))


def test_the_chosen_token_has_no_loss_and_no_gradient(inputs, actor):
    x = torch.tensor([[0.1, 0.1, 1.0]], dtype=torch.float64, requires_grad=True)
    found = clip_cov(inputs(x, [0.0] * 3, [1.0] * 3, prepared=torch.tensor([[True, False, False]])), actor())
    assert found.token_loss[0].tolist() == pytest.approx([0.0, -math.exp(0.1), -1.2])
    assert found.metrics["pg_clipfrac"].values[0].tolist() == [True, False, False]
    found.token_loss.sum().backward()
    assert x.grad[0].tolist() == pytest.approx([0.0, -math.exp(0.1), 0.0])


def test_those_between_the_bounds_are_chosen(actor):
    # Means 0: the covariances are 4, 4, 1, 1 and 0, 0.
    values = torch.tensor([[2.0, -2.0, 1.0, -1.0, 0.0, 0.0]])
    batch = step(old_log_prob=values, advantages=values, response_mask=torch.ones(1, 6, dtype=torch.bool))
    assert choose_clip_cov(batch, actor(**ALL))[0].tolist() == [False, False, True, True, False, False]
    strict = actor(**ALL | {"clip_cov_lb": 1.0, "clip_cov_ub": 4.0})
    assert not choose_clip_cov(batch, strict).any(), "the bounds themselves are outside"


def test_no_more_than_the_share_and_evenly_drawn(actor):
    config = actor(**ALL | {"clip_cov_ratio": 0.1, "clip_cov_lb": -math.inf, "clip_cov_ub": math.inf})
    batch = step(response_mask=torch.ones(4, 8, dtype=torch.bool))
    draws = torch.stack(
        [choose_clip_cov(step(0, number=n, response_mask=batch.response_mask), config) for n in range(400)]
    )
    assert draws.sum(dim=(1, 2)).unique().tolist() == [3]
    # 400 draws of 3 of 32: 37.5 times each, standard deviation 5.8.
    assert 12 < draws.sum(dim=0).min() <= draws.sum(dim=0).max() < 63


def test_the_draw_depends_on_seed_and_step_and_not_on_padding(actor):
    config = actor(**ALL | {"clip_cov_ratio": 0.1})
    batch = step()
    chosen = choose_clip_cov(batch, config)
    assert chosen.any()
    assert torch.equal(choose_clip_cov(step(), config), chosen)
    padded = {
        name: torch.nn.functional.pad(getattr(batch, name), (0, 3), value=value)
        for name, value in (("old_log_prob", math.nan), ("advantages", math.inf), ("response_mask", False))
    }
    assert torch.equal(choose_clip_cov(step(**padded), config), torch.nn.functional.pad(chosen, (0, 3)))
    assert any(not torch.equal(choose_clip_cov(step(number=n), config), chosen) for n in range(1, 5))


@pytest.mark.parametrize("changes", [{"clip_cov_ratio": 0.0}, {"clip_cov_lb": 1e6, "clip_cov_ub": 1e7}])
def test_nothing_to_choose(changes, actor):
    assert not choose_clip_cov(step(), actor(**ALL | changes)).any()


def test_an_empty_batch(actor):
    empty = step(response_mask=torch.zeros(4, 8, dtype=torch.bool))
    assert not choose_clip_cov(empty, actor(**ALL | {"clip_cov_lb": -1.0})).any()


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**31), low=st.floats(0, 1), high=st.floats(0, 1))
def test_like_plain_python(seed, low, high, same_as_slow, actor):
    def slow(row):
        losses = []
        for ratio, a, w, chosen in zip(row.ratio, row.advantages, row.weights, row.prepared, strict=True):
            loss = max(-a * ratio, -a * min(max(ratio, 1 - low), 1 + high))
            losses.append(0.0 if chosen else w * loss)
        return losses

    same_as_slow(clip_cov, actor(clip_ratio_low=low, clip_ratio_high=high), slow, seed)


def test_what_cannot_work_is_refused(inputs, actor):
    with pytest.raises(DataError, match="clip_cov"):
        clip_cov(inputs([0.0], [0.0], [1.0]), actor())
    with pytest.raises(ConfigError, match="clip_ratio_low"):
        clip_cov(inputs([0.0], [0.0], [1.0], prepared=torch.ones(1, 1)), actor(clip_ratio_low=2.0))
