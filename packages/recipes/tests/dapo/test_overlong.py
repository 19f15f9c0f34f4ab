import pytest
from rl_core.errors import ConfigError
from rl_recipes.dapo.overlong import OverlongSettings, overlong_penalty


@pytest.mark.parametrize(
    ("length", "wanted"),
    [
        (0, 0.0),
        (16384, 0.0),
        (16385, -1 / 4096),
        (18432, -0.5),
        (20480, -1.0),
        (20481, -1.0),
        (10**9, -1.0),
    ],
)
def test_the_papers_limit_and_buffer(length, wanted):
    assert overlong_penalty(length, 20480, 4096) == pytest.approx(wanted, abs=1e-12)


def test_the_factor_scales_and_a_buffer_of_the_whole_limit_starts_at_the_first_token():
    assert [overlong_penalty(n, 4, 4, 2.0) for n in range(6)] == [0.0, -0.5, -1.0, -1.5, -2.0, -2.0]
    assert overlong_penalty(20, 4, 2, 0.0) == 0.0


def test_no_penalty_is_plain_zero():
    assert str(overlong_penalty(1, 10, 5)) == "0.0"


def settings(limit=100, **options):
    return OverlongSettings.of(options, limit)


def test_defaults():
    found = settings()
    assert (found.is_enabled, found.is_logged, found.filters, found.scored_by) == (False, False, False, "naive")
    assert (found.max_length, found.buffer, found.factor) == (100, 20, 1.0)
    assert settings(limit=3).buffer == 1
    assert settings(max_resp_len=50).buffer == 10


def test_what_is_given():
    found = settings(
        overlong_buffer_cfg={"enable": True, "len": 30, "penalty_factor": 0.5, "log": True},
        max_resp_len=60,
        overlong_filter=True,
        scored_by="other",
    )
    assert (found.is_enabled, found.is_logged, found.filters, found.scored_by) == (True, True, True, "other")
    assert (found.max_length, found.buffer, found.factor) == (60, 30, 0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"overlong_buffer_cfg": {"len": 101}}, r"\.len is 101, which is longer than the longest response, 100 tokens"),
        ({"overlong_buffer_cfg": {"len": 61}, "max_resp_len": 60}, "longest response, 60 tokens"),
        ({"overlong_buffer_cfg": {"len": 0}}, r"len is 0; it must be a whole number of tokens, at least 1"),
        ({"overlong_buffer_cfg": {"len": 1.5}}, "len is 1.5; it must be a whole number"),
        ({"overlong_buffer_cfg": {"len": True}}, "len is True; it must be a whole number"),
        ({"max_resp_len": -1}, r"reward_kwargs\.max_resp_len is -1"),
        ({"overlong_buffer_cfg": {"penalty_factor": -1.0}}, "penalty_factor is -1.0; it is subtracted"),
        ({"overlong_buffer_cfg": {"penalty_factor": float("inf")}}, "penalty_factor is inf"),
        ({"overlong_buffer_cfg": {"penalty_factor": "x"}}, "penalty_factor is 'x'"),
        ({"overlong_buffer_cfg": {"enable": "yes"}}, "enable is 'yes'; it must be true or false"),
        ({"overlong_buffer_cfg": 4}, "overlong_buffer_cfg is 4; it is a section"),
        (
            {"overlong_buffer_cfg": {"lenght": 4}},
            "overlong_buffer_cfg has lenght; reward manager 'dapo' reads enable, len",
        ),
        ({"overlong": 4}, "reward_kwargs has overlong; reward manager 'dapo' reads overlong_buffer_cfg"),
        ({"scored_by": "dapo"}, "scored_by is 'dapo'; it must be the name of another"),
        ({"scored_by": 3}, "scored_by is 3"),
    ],
)
def test_values_that_cannot_be(options, message):
    with pytest.raises(ConfigError, match=message):
        settings(**options)
