import functools
import re

import pytest
from rl_core.errors import ConfigError
from rl_core.scoring.call import ALWAYS, read_call


def names(function, **reward_kwargs):
    return dict(read_call(function, reward_kwargs, "reward function 'f'").names)


def test_a_function_gets_what_it_names():
    assert names(lambda solution_str, ground_truth: 0) == {
        "solution_str": "solution_str",
        "ground_truth": "ground_truth",
    }
    assert list(names(lambda response_ids, prompt_str, bonus=1: 0)) == ["prompt_str", "response_ids"]


def test_any_arguments_are_the_four_of_the_contract_and_those_that_are_named():
    assert set(names(lambda **arguments: 0)) == set(ALWAYS)
    assert set(names(lambda num_turns, **arguments: 0)) == {*ALWAYS, "num_turns"}


def test_the_configuration_goes_before_the_row():
    assert names(lambda solution_str, ground_truth: 0, ground_truth="7") == {"solution_str": "solution_str"}


@pytest.mark.parametrize("function", [lambda solution_str, judge: 0, lambda judge, /, solution_str: 0])
def test_what_nobody_has_is_refused_by_name(function):
    with pytest.raises(ConfigError, match=r"reward function 'f' needs 'judge'.*there are data_source, solution_str"):
        read_call(function, {}, "reward function 'f'")


def test_arguments_of_the_configuration_must_be_taken():
    with pytest.raises(
        ConfigError, match=re.escape("reward_kwargs has 'bonsu', which reward function 'f' does not take")
    ):
        read_call(lambda solution_str, bonus=1: 0, {"bonsu": 2}, "reward function 'f'")
    assert names(lambda **arguments: 0, bonsu=2).keys() == set(ALWAYS)


def test_plural_names_make_one_call_for_many_rows():
    call = read_call(lambda data_sources, solution_strs, ground_truths, extra_infos: [], {}, "f")
    assert call.is_batched
    assert dict(call.names) == {
        "data_sources": "data_source",
        "solution_strs": "solution_str",
        "ground_truths": "ground_truth",
        "extra_infos": "extra_info",
    }
    assert set(names(lambda solution_strs, **arguments: [])) == set(call.names)
    assert not read_call(lambda solution_str, num_turns: 0, {}, "f").is_batched


def test_objects_and_partials_are_looked_into():
    class Judge:
        async def __call__(self, solution_str):
            return 0

    assert list(names(Judge())) == ["solution_str"]
    assert list(names(functools.partial(lambda solution_str, bonus: 0, bonus=1))) == ["solution_str"]
