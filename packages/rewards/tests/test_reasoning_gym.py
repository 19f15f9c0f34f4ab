import json
import time

import pytest
import reasoning_gym
from reasoning_gym.factory import DATASETS
from rl_rewards.errors import GraderError, GroundTruthError
from rl_rewards.reasoning_gym import compute_score


def score(response, gold, name="chain_sum", **options):
    return compute_score(data_source=f"reasoning_gym/{name}", solution_str=response, ground_truth=gold, **options)


def entry(name, **options):
    return reasoning_gym.create_dataset(name, size=1, seed=3, **options)[0]


@pytest.mark.parametrize("name", ["chain_sum", "countdown", "spell_backward", "gcd", "letter_counting", "rearc"])
def test_the_answer_of_the_data_set_is_right(name):
    item = entry(name)
    whole = json.dumps(item, default=str)
    result = score(f"so <answer>{item['answer']}</answer>", whole, name)
    assert result == 1.0
    assert isinstance(result, float)
    if "\n" not in item["answer"]:
        assert score(f"Answer: {item['answer']}", whole, name) == 1.0
    assert score("<answer>nothing of the kind</answer>", whole, name) < 0.5


@pytest.mark.parametrize("name", ["chain_sum", "countdown"])
def test_no_answer_is_zero_whatever_the_scorer_gives(name):
    item = entry(name)
    for response in ("", None, f"so {item['answer']}", "<answer></answer>", "<answer>1"):
        assert score(response, json.dumps(item, default=str), name) == 0.0


def test_words_around_the_number_earn_a_part_or_nothing():
    item = entry("chain_sum")
    response = f"<answer>it is {item['answer']} then</answer>"
    assert 0 < score(response, item["answer"], extra_info={"metadata": json.dumps(item["metadata"])}) < 1
    assert score(response, item["answer"], threshold=1.0) == 0.0
    assert score(f"<answer>{item['answer']}</answer>", item["answer"], threshold=1.0) == 1.0
    assert score(item["answer"], item["answer"], extract="all") == 1.0


def test_a_data_set_that_does_not_exist_is_an_error():
    with pytest.raises(
        GraderError, match=r"'reasoning_gym/chainsum' names no data set of reasoning-gym; it has .*chain_sum"
    ):
        score("<answer>1</answer>", "1", "chainsum")
    item = entry("gcd")
    assert score(f"<answer>{item['answer']}</answer>", json.dumps(item), "") == 1.0


def test_a_row_that_lacks_what_the_scorer_needs_is_an_error():
    with pytest.raises(GroundTruthError, match="futoshiki fails on the right answer too: KeyError"):
        score("<answer>1</answer>", "1", "futoshiki")
    with pytest.raises(GroundTruthError, match="neither an answer nor metadata"):
        score("<answer>1</answer>", None)


def test_b52_degenerate_responses_are_scored_quickly():
    started = time.process_time()
    for text in ("<answer>" * 100_000, "<answer>" + "1" * 1_000_000 + "</answer>", "answer is " * 100_000):
        assert score(text, "7") == 0.0
    assert time.process_time() - started < 2


@pytest.mark.slow
def test_every_data_set_scores_its_own_answer():
    unusual = {}
    for name in sorted(DATASETS):
        if name == "composite":
            continue  # rows carry the name of the data set that made them
        try:
            item = entry(name)
        except Exception as error:
            unusual[name] = f"makes no entry: {error}"
            continue
        if item["answer"] is None:
            continue  # several answers are right, and it names none
        result = score(f"<answer>{item['answer']}</answer>", json.dumps(item, default=str), name)
        if result < 0.99:
            unusual[name] = result
    assert unusual == {}
