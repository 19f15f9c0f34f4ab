from types import SimpleNamespace

import numpy as np
import pytest
from rl_core.contracts.rollout import RolloutOutput, RolloutRequest, SamplingParams
from rl_core.workers.rollout_check import malformation

REQUEST = RolloutRequest(
    request_id="a", prompt_ids=(1, 2), sampling=SamplingParams(max_tokens=4), seed=0, response_ids=(9,)
)
GOOD = {
    "request_id": "a",
    "token_ids": (7, 8),
    "log_probs": (-0.5, -1.5),
    "finish_reason": "stop",
    "versions": ((3, 2),),
    "extras": {"ranks": np.arange(2)},
}


def problem(has_log_probs=True, **changes):
    return malformation(RolloutOutput(**{**GOOD, **changes}), REQUEST, has_log_probs=has_log_probs)


def test_a_sound_answer_has_nothing_wrong():
    assert problem() is None
    assert problem(has_log_probs=False, log_probs=None) is None
    assert problem(token_ids=(), log_probs=(), versions=(), extras={}, finish_reason="abort") is None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"request_id": "b"}, "belongs to request 'b'"),
        ({"finish_reason": "tired"}, "finish reason 'tired' is none of stop, length, abort"),
        ({"token_ids": (7.5, 8.0)}, "no token ids"),
        ({"token_ids": (7, -1)}, "no token ids"),
        ({"token_ids": ((7,), (8,))}, "no token ids"),
        ({"token_ids": (7,) * 4}, "4 tokens came where max_tokens leaves room for 3"),
        ({"log_probs": None}, "comes without"),
        ({"log_probs": (-0.5,)}, "2 tokens came with 1 log-probs"),
        ({"log_probs": (-0.5, float("nan"))}, "not finite"),
        ({"log_probs": ("a", "b")}, "not finite"),
        ({"versions": ((3, 1),)}, "the version spans count 1 tokens of 2"),
        ({"extras": {"ranks": np.arange(3)}}, "extras 'ranks' have 3 entries for 2 tokens"),
    ],
)
def test_each_defect_is_named(changes, text):
    assert text in problem(**changes)


def test_something_else_than_an_output():
    assert malformation(SimpleNamespace(), REQUEST, has_log_probs=True) == (
        "the engine returned a SimpleNamespace instead of a RolloutOutput"
    )
