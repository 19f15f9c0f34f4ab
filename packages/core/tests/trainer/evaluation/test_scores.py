import numpy as np
import pytest
from rl_core.contracts.reward import RewardResult
from rl_core.errors import ConfigError
from rl_core.trainer.evaluation.scores import Answer, pass_at_k, pass_sizes, read_answers, score_sources
from rl_core.trainer.ppo.validation import Answers
from rl_dataproto import DataProto, jagged_from_rows, object_array


def answer(prompt, score, *, source="s", passed=None, tokens=4, cut=False):
    return Answer(prompt, source, score, score == 1 if passed is None and score is not None else passed, tokens, cut)


def lost(prompt, source="s"):
    return Answer(prompt, source, None, None, None, is_cut=False)


@pytest.mark.parametrize(("k", "value"), [(1, 0.25), (2, 0.5), (4, 1.0)])
def test_b96_one_right_of_four(k, value):
    assert pass_at_k([[True, False, False, False]], k).value == pytest.approx(value)
    assert pass_at_k([[False] * 4], k).value == 0
    assert pass_at_k([[True, False, False, False], [False] * 4], k).value == pytest.approx(value / 2)


def test_a_prompt_with_fewer_scored_answers_than_k_is_left_out_and_counted():
    prompts = [[True, False], [False, False, False]]
    assert (pass_at_k(prompts, 3).value, pass_at_k(prompts, 3).num_left_out) == (0.0, 1)
    assert pass_at_k(prompts, 2).value == pytest.approx(0.5)
    assert (pass_at_k(prompts, 4).value, pass_at_k(prompts, 4).num_left_out) == (None, 2)


def test_what_is_missing_is_left_out_and_never_0():
    answers = [answer(0, 1.0), lost(0), answer(0, None), answer(1, 0.0, tokens=8, cut=True), answer(1, 0.0), lost(1)]
    (scores,) = score_sources(answers, [1])
    assert scores.score == 0.5
    assert scores.passes[1].value == 0.5
    assert (scores.num_prompts, scores.num_answers, scores.num_failed, scores.num_missing) == (2, 6, 2, 1)
    assert scores.num_tokens == pytest.approx((4 + 4 + 8 + 4) / 4)
    assert scores.cut_share == 0.25


def test_nothing_scored_has_no_numbers():
    (scores,) = score_sources([answer(0, None), lost(0)], [1, 2])
    assert scores.score is None
    assert [passed.value for passed in scores.passes.values()] == [None, None]
    assert scores.passes[2].num_left_out == 1
    assert score_sources([lost(0)], [1])[0].num_tokens is None


def test_sources_stand_by_name_with_all_of_them_last():
    answers = [answer(0, 1.0, source="b"), answer(1, 0.0, source="a"), answer(2, 0.0, source="a")]
    scores = score_sources(answers, [1])
    assert [(item.data_source, item.num_prompts, item.score) for item in scores] == [
        ("a", 2, 0.0),
        ("b", 1, 1.0),
        ("all", 3, pytest.approx(1 / 3)),
    ]
    assert [item.data_source for item in score_sources(answers[:1], [1])] == ["b"]


def answers_of(rows, results, reasons, sources):
    """What a validator returns, with two-token responses for the rows that came."""
    count = len(rows)
    return Answers(
        DataProto.from_dict(non_tensors={"data_source": object_array(sources)}),
        reasons,
        np.array(rows),
        DataProto.from_dict(
            tensors={"responses": jagged_from_rows([[1, 2]] * count)},
            non_tensors={"finish_reason": object_array(["length"] + ["stop"] * (count - 1))},
        ),
        results,
    )


def test_answers_are_read_in_the_order_they_were_asked_for():
    results = [RewardResult(0.5), RewardResult(None, error="no"), RewardResult(1.0)]
    read = read_answers(answers_of([0, 2, 3], results, [None, "late", None, None], ["s"] * 4), 2, 1.0)
    assert [(item.prompt, item.score, item.passed, item.num_tokens, item.is_cut) for item in read] == [
        (0, 0.5, False, 2, True),
        (0, None, None, None, False),
        (1, None, None, 2, False),
        (1, 1.0, True, 2, False),
    ]
    assert [item.passed for item in read_answers(answers_of([0], results[:1], [None], ["s"]), 1, 0.5)] == [True]


def test_acc_decides_where_every_scored_answer_of_a_source_has_it():
    results = [RewardResult(-1.0, {"acc": True}), RewardResult(None), RewardResult(2.0), RewardResult(0.0, {"acc": 1})]
    read = read_answers(answers_of([0, 1, 2, 3], results, [None] * 4, ["a", "a", "b", "b"]), 1, 1.0)
    assert [item.passed for item in read] == [True, None, True, False]


@pytest.mark.parametrize(
    ("text", "n", "sizes"), [(None, 1, [1]), (None, 6, [1, 2, 4, 6]), (None, 8, [1, 2, 4, 8]), ("8, 1,8", 8, [1, 8])]
)
def test_sizes(text, n, sizes):
    assert pass_sizes(text, n) == sizes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,9", r"pass@9, but each prompt gets 8 answers: k cannot be larger than n. Raise --n to 9"),
        ("0", "--k is '0'"),
        ("a", "--k is 'a'"),
        (",", "--k is ','"),
    ],
)
def test_sizes_that_cannot_be(text, message):
    with pytest.raises(ConfigError, match=message):
        pass_sizes(text, 8)
