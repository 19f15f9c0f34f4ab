from __future__ import annotations

import copy

import pytest
from rl_core.data.reward_text import RewardText, same_vocabulary, template_tail
from rl_core.errors import DataError
from rl_testing.fakes.tokenizer import TinyTokenizer
from rl_testing.models import TURN_END_ID, tiny_tokenizer

QUESTION = [{"role": "user", "content": "1+1?"}]
OTHER_TEMPLATE = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}"


@pytest.fixture(scope="module")
def policy():
    return tiny_tokenizer()


def with_template(tokenizer, template):
    changed = copy.deepcopy(tokenizer)
    changed.chat_template = template
    return changed


def with_word(tokenizer):
    changed = copy.deepcopy(tokenizer)
    changed.add_tokens(["two"])
    return changed


def prompt_ids(tokenizer):
    return tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, return_dict=False)


def answer_ids(tokenizer, text="two", *, ends=True):
    return [*tokenizer.encode(text, add_special_tokens=False), *([TURN_END_ID] if ends else [])]


def conversation(tokenizer, answer="two"):
    messages = [*QUESTION, {"role": "assistant", "content": answer}]
    return tokenizer.apply_chat_template(messages, return_dict=False)


def test_with_the_policys_tokenizer_the_sampled_tokens_are_read_and_the_turn_is_written_to_its_end(policy):
    text = RewardText(policy, tiny_tokenizer())
    assert text.is_same
    found = text.read(QUESTION, prompt_ids(policy), answer_ids(policy))
    assert found == (conversation(policy), False)
    assert template_tail(policy) == [TURN_END_ID, *policy.encode("\n")]


def test_a_response_that_did_not_end_gets_no_end(policy):
    ids = [*prompt_ids(policy), *answer_ids(policy, ends=False)]
    assert RewardText(policy, policy).read(QUESTION, prompt_ids(policy), answer_ids(policy, ends=False)).ids == ids


def test_a_prompt_of_text_gets_no_template(policy):
    ids = policy.encode("1+1?")
    assert RewardText(policy, policy).read("1+1?", ids, answer_ids(policy)).ids == [*ids, *answer_ids(policy)]


@pytest.mark.parametrize("make", [lambda one: with_template(one, OTHER_TEMPLATE), with_word], ids=["template", "word"])
def test_otherwise_the_conversation_is_written_anew(policy, make):
    scorer = make(policy)
    text = RewardText(policy, scorer)
    assert not text.is_same
    found = text.read(QUESTION, prompt_ids(policy), answer_ids(policy))
    assert found.ids == conversation(scorer)
    assert scorer.decode(found.ids).count("two") == 1
    # The policy's end of turn is not text of the answer, and one that is missing is no reason to leave a token out.
    assert text.read(QUESTION, prompt_ids(policy), answer_ids(policy, ends=False)).ids == found.ids


def test_a_prompt_of_text_is_written_with_the_scorers_tokens(policy):
    scorer = with_word(policy)
    found = RewardText(policy, scorer).read("1+1?", policy.encode("1+1?"), answer_ids(policy))
    assert found.ids == [*scorer.encode("1+1?"), scorer.convert_tokens_to_ids("two"), scorer.eos_token_id]


def test_a_scorer_without_a_template_reads_what_the_policys_wrote(policy):
    bare = with_template(policy, None)
    text = RewardText(policy, bare)
    assert text.is_same
    assert text.read(QUESTION, [1, 2], [3, TURN_END_ID]).ids == [1, 2, 3, TURN_END_ID]
    with pytest.raises(DataError, match="no chat template"):
        RewardText(policy, with_template(with_word(policy), None)).read(QUESTION, [1], [2])


def test_without_the_prompts_messages_nothing_can_be_written_anew(policy):
    with pytest.raises(DataError, match="no raw_prompt"):
        RewardText(policy, with_word(policy)).read(None, [1], [2])


def test_a_longer_conversation_loses_its_beginning(policy):
    whole = conversation(policy)
    for limit, is_cut in ((len(whole), False), (len(whole) - 1, True), (5, True)):
        found = RewardText(policy, policy, limit).read(QUESTION, prompt_ids(policy), answer_ids(policy))
        assert found == (whole[-limit:], is_cut)


def test_vocabularies(policy):
    assert same_vocabulary(policy, tiny_tokenizer())
    assert not same_vocabulary(policy, with_word(policy))
    assert same_vocabulary(TinyTokenizer(), TinyTokenizer())
    assert not same_vocabulary(policy, TinyTokenizer())
