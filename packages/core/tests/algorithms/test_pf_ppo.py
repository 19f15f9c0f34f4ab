from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rl_core.algorithms.pf_ppo import resampled_rows, row_weights
from rl_core.errors import ConfigError

NAN = float("nan")
UID = np.array(list("aaabb"), dtype=object)
SCORES = torch.tensor([1.0, -2.0, 0.5, 4.0, NAN])
USABLE = torch.tensor([True, True, True, True, False])


def config(method, weight_pow=2.0):
    return SimpleNamespace(reweight_method=method, weight_pow=weight_pow)


@pytest.mark.parametrize(
    ("method", "weights"),
    [
        ("pow", [1 / 16, 4 / 16, 0.25 / 16, 1.0, 0.0]),
        ("max_min", [1.0, 1.0, 0.0, 1.0, 0.0]),
        ("max_random", [0.4, 0.1, 0.1, 0.4, 0.0]),
    ],
)
def test_weights(method, weights):
    assert row_weights(SCORES, USABLE, UID, config(method)).tolist() == pytest.approx(weights)


def test_exponent_zero_weighs_all_alike_and_large_ones_do_not_overflow():
    assert row_weights(SCORES, USABLE, UID, config("pow", 0.0)).tolist() == [1.0, 1.0, 1.0, 1.0, 0.0]
    assert row_weights(SCORES * 1e30, USABLE, UID, config("pow", 900.0)).tolist() == pytest.approx(
        [0.0, 0.0, 0.0, 1.0, 0.0]
    )


def test_rows_are_drawn_in_proportion_to_their_weights():
    scores = torch.tensor([1.0, 3.0]).repeat(4000)
    rows = resampled_rows(scores, scores > 0, np.arange(8000), config("pow", 1.0), (7, 1))
    assert len(rows) == 8000
    assert (rows % 2).mean() == pytest.approx(0.75, abs=0.02)
    assert (np.diff(rows) >= 0).all()


def test_a_draw_repeats_and_follows_the_seed():
    scores = torch.arange(1.0, 21.0)
    draws = [
        resampled_rows(scores, scores > 0, np.arange(20), config("pow"), seed) for seed in ((1, 2), (1, 2), (1, 3))
    ]
    assert draws[0].tolist() == draws[1].tolist()
    assert draws[0].tolist() != draws[2].tolist()


@pytest.mark.parametrize("method", ["pow", "max_min", "max_random"])
def test_unusable_rows_are_never_drawn(method):
    for step in range(30):
        assert 4 not in resampled_rows(SCORES, USABLE, UID, config(method), (0, step))


@pytest.mark.parametrize("scores", [torch.zeros(5), torch.full((5,), NAN)])
def test_without_any_weight_every_row_comes_once(scores):
    rows = resampled_rows(scores, torch.isfinite(scores), UID, config("pow"), (0, 0))
    assert rows.tolist() == [0, 1, 2, 3, 4]
    empty = resampled_rows(scores[:0], torch.zeros(0).bool(), UID[:0], config("max_min"), (0, 0))
    assert empty.tolist() == []


def test_what_is_refused():
    with pytest.raises(ConfigError, match="found 'mean'"):
        row_weights(SCORES, USABLE, UID, config("mean"))
    with pytest.raises(ConfigError, match="weight_pow"):
        row_weights(SCORES, USABLE, UID, config("pow", -1.0))
