import json
from types import SimpleNamespace

import pytest
from rl_core.algorithms.kl_controller import AdaptiveKLController, FixedKLController, build_kl_controller
from rl_core.errors import CheckpointError, ConfigError, DataError


def _config(**changes):
    return SimpleNamespace(**{"type": "adaptive", "kl_coef": 0.2, "target_kl": 6.0, "horizon": 10000, **changes})


def test_fixed_never_moves():
    controller = FixedKLController(0.001)
    controller.update(100.0, 512)
    assert controller.value == 0.001


@pytest.mark.parametrize(
    ("kl", "expected"),
    [
        (6.0, 0.2),
        (6.6, 0.2 * (1 + 0.1 * 256 / 10000)),
        (600.0, 0.2 * (1 + 0.2 * 256 / 10000)),
        (0.0, 0.2 * (1 - 0.2 * 256 / 10000)),
        (-3.0, 0.2 * (1 - 0.2 * 256 / 10000)),
    ],
)
def test_adaptive_moves_by_the_clipped_relative_error(kl, expected):
    controller = AdaptiveKLController(0.2, target_kl=6.0, horizon=10000)
    controller.update(kl, 256)
    assert controller.value == pytest.approx(expected, abs=1e-15)


def test_adaptive_resumes_exactly():
    straight = build_kl_controller(_config())
    for kl in (9.0, 2.0, 7.0, 7.0):
        straight.update(kl, 64)
    first = build_kl_controller(_config())
    for kl in (9.0, 2.0):
        first.update(kl, 64)
    second = build_kl_controller(_config())
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for kl in (7.0, 7.0):
        second.update(kl, 64)
    assert second.value == straight.value


def test_a_fixed_coefficient_comes_from_the_config_on_resume():
    controller = FixedKLController(0.5)
    controller.load_state_dict(FixedKLController(0.1).state_dict())
    assert controller.value == 0.5


@pytest.mark.parametrize(("saved", "loading"), [("fixed", "adaptive"), ("adaptive", "fixed")])
def test_the_state_of_another_type_is_refused(saved, loading):
    state = build_kl_controller(_config(type=saved)).state_dict()
    with pytest.raises(CheckpointError, match=rf"'{saved}'.*'{loading}'"):
        build_kl_controller(_config(type=loading)).load_state_dict(state)


@pytest.mark.parametrize("kind", ["fixed", "adaptive"])
@pytest.mark.parametrize("kl", [float("nan"), float("inf")])
def test_a_kl_that_is_not_finite_is_refused_and_the_coefficient_stays(kind, kl):
    controller = build_kl_controller(_config(type=kind))
    with pytest.raises(DataError, match="not finite"):
        controller.update(kl, 64)
    assert controller.value == 0.2


def test_a_horizon_that_would_turn_the_sign_is_refused():
    controller = AdaptiveKLController(0.2, target_kl=6.0, horizon=100)
    with pytest.raises(ConfigError, match=r"horizon above 120"):
        controller.update(0.0, 600)
    assert controller.value == 0.2


def test_an_unknown_type_is_refused():
    with pytest.raises(ConfigError, match="fixed or adaptive; found 'linear'"):
        build_kl_controller(_config(type="linear"))


@pytest.mark.parametrize(
    "bad", [{"kl_coef": 0.0}, {"kl_coef": -1.0}, {"target_kl": 0.0}, {"horizon": 0}, {"kl_coef": float("nan")}]
)
def test_values_that_cannot_work_are_refused_with_their_key(bad):
    with pytest.raises(ConfigError, match=rf"kl_ctrl\.{next(iter(bad))}"):
        build_kl_controller(_config(**bad))


def test_a_fixed_coefficient_may_be_zero_but_not_negative():
    assert FixedKLController(0.0).value == 0.0
    with pytest.raises(ConfigError, match="kl_coef"):
        FixedKLController(-0.1)
