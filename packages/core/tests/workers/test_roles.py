import pytest
from rl_core.errors import ConfigError
from rl_core.workers.roles import Role


@pytest.mark.parametrize("role", list(Role))
def test_a_role_is_found_by_both_of_its_names(role):
    assert Role.from_string(str(role)) is role
    assert Role.from_string(role.name) is role


def test_the_names_that_configurations_use():
    assert Role.from_string("actor_rollout") is Role.ActorRollout
    assert Role.from_string("ref") is Role.RefPolicy
    assert Role.from_string("reward_model") is Role.RewardModel


def test_an_unknown_role_is_refused_with_the_choices():
    with pytest.raises(ConfigError, match="'actr'; choose one of actor, rollout, actor_rollout, critic"):
        Role.from_string("actr")
