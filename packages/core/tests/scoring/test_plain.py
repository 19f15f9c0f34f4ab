import numpy as np
import pytest
from rl_core.contracts.reward import RewardFailure, RewardResult
from rl_core.scoring.frames import MAX_ANSWER_BYTES
from rl_core.scoring.plain import decode, encode, plain


def test_results_come_back_as_they_were():
    results = [
        RewardResult(0.1 + 0.2, {"acc": True, "pred": "é\ud800", "n": None, "parts": [1, 2.5]}),
        RewardResult(None, error="boom", failure=RewardFailure.ERROR),
    ]
    assert decode(encode(results)) == results


def test_what_json_has_no_form_for_becomes_plain():
    assert plain({"a": np.float32(0.5), 1: np.array([1, 2]), "t": (1, {2})}) == {"a": 0.5, "1": [1, 2], "t": [1, [2]]}
    assert plain(object()).startswith("<object object")


def test_what_is_too_large_or_has_no_end_is_missing():
    endless: dict = {}
    endless["again"] = endless
    (result,) = decode(encode([RewardResult(1.0, {"text": "x" * MAX_ANSWER_BYTES})]))
    assert (result.score, result.failure) == (None, RewardFailure.INVALID)
    assert "an answer may have 4,194,304" in result.error
    (result,) = decode(encode([RewardResult(1.0, {"number": 10**5000})]))
    assert (result.score, result.failure) == (None, RewardFailure.INVALID)
    assert decode(encode([RewardResult(1.0, endless)]))[0].score == 1.0  # cut at a depth


@pytest.mark.parametrize("sent", [b"{}x", b"[1]", b"[[1,2]]", b'[[null,{},"x","no such kind"]]'])
def test_what_is_no_list_of_results_is_refused(sent):
    with pytest.raises(ValueError, match=r"."):
        decode(sent)
