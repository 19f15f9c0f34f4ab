from __future__ import annotations

import pytest
from rl_core.config import RolloutConfig
from rl_core.contracts.rollout import SamplingParams
from rl_core.errors import RlError
from rl_testing.contracts.replica import ask
from rl_testing.fakes.rollout_config import FakeRolloutConfig
from rl_testing.fakes.stopping import StopRules, stop_rules
from rl_testing.fakes.tokenizer import TinyTokenizer

RULES = StopRules(eos_token_ids=(1,), vocab_size=48, max_model_len=10, decode=TinyTokenizer().decode)


@pytest.mark.parametrize(
    ("tokens", "sampling", "reason"),
    [
        ([5, 6], {}, None),
        ([5, 1], {}, "stop"),
        ([5, 7], {"stop_token_ids": (7,)}, "stop"),
        ([5, 1], {"ignore_eos": True}, None),
        ([5, 7], {"ignore_eos": True, "stop_token_ids": (7,)}, None),
        ([5, 1], {"min_tokens": 3}, None),
        ([5, 6, 1], {"min_tokens": 3}, "stop"),
        ([5, 6, 7], {"max_tokens": 3}, "length"),
        ([5, 6, 1], {"max_tokens": 3}, "stop"),
        ([5] * 7, {}, "length"),  # with the prompt, max_model_len
        ([2, 3], {"stop": ("ab",)}, "stop"),
        ([2, 3], {"stop": ("ba",)}, None),
        ([2, 3], {"stop": ("ab",), "min_tokens": 3}, None),
    ],
)
def test_finish(tokens, sampling, reason):
    assert RULES.finish(ask((8, 8, 8), **sampling), tokens) == reason


def test_only_endings_that_come_too_early_are_forbidden():
    sampling = SamplingParams(min_tokens=3, stop_token_ids=(7, 99))
    assert [RULES.forbidden(sampling, position) for position in range(4)] == [(1, 7), (1, 7), (), ()]
    assert RULES.forbidden(SamplingParams(min_tokens=3, ignore_eos=True), 0) == ()


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (ask((), name="q"), "'q' has an empty prompt"),
        (ask((2,) * 10), "prompt of 10 tokens.*max_model_len 10"),
        (ask((2, 48, -1)), r"token ids \[-1, 48\]"),
        (ask((2,), max_tokens=0), "max_tokens 0"),
    ],
)
def test_what_cannot_be_served_is_refused(request_, words):
    with pytest.raises(RlError, match=words):
        RULES.check(request_)


def test_the_longest_prompt_leaves_room_for_a_token():
    RULES.check(ask((2,) * 9))


@pytest.mark.parametrize(
    ("section", "longest"),
    [
        ({"max_model_len": 7, "prompt_length": 3, "response_length": 3}, 7),
        ({"prompt_length": 3, "response_length": 4}, 7),
        ({}, 4096),
    ],
)
def test_the_rollout_section_says_how_long(section, longest):
    assert stop_rules(RolloutConfig(name="fake", **section), 48).max_model_len == longest


def test_the_plugins_own_section_says_what_ends():
    rollout = RolloutConfig(name="fake")
    assert stop_rules(rollout, 48).eos_token_ids == (1,)
    rollout.fake_config = FakeRolloutConfig(eos_token_ids=[3, 4])
    assert stop_rules(rollout, 48).eos_token_ids == (3, 4)
