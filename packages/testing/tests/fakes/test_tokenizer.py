from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rl_testing.fakes.tokenizer import ALPHABET, TinyTokenizer, load_tokenizer

TOKENIZER = TinyTokenizer()
MESSAGES = [{"role": "user", "content": "hi"}]


def test_ids_fit_the_tiny_model():
    assert (TOKENIZER.vocab_size, len(TOKENIZER), len(set(ALPHABET))) == (48, 48, 46)
    assert TOKENIZER.encode("az09 \n.,:?+-=#") == [2, 27, 28, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47]


@given(st.text(alphabet=ALPHABET))
def test_decode_undoes_encode(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_what_has_no_id_is_folded_or_marked():
    assert TOKENIZER.decode(TOKENIZER.encode("Ab!é")) == "ab??"
    assert TOKENIZER.decode([2, 99]) == "a?"


def test_special_tokens_are_named_or_skipped():
    assert TOKENIZER.decode([2, 1, 0]) == "a<eos><pad>"
    assert TOKENIZER.decode([2, 1, 0], skip_special_tokens=True) == "a"
    assert TOKENIZER.batch_decode([[2], [3, 1]], skip_special_tokens=True) == ["a", "b"]


def test_chat_template():
    text = TOKENIZER.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    assert text == "user:hi\nassistant:"
    assert TOKENIZER.apply_chat_template(MESSAGES, add_generation_prompt=True) == TOKENIZER.encode(text)
    wrapped = TOKENIZER.apply_chat_template(MESSAGES, return_dict=True)
    assert wrapped == {"input_ids": TOKENIZER.encode("user:hi\n"), "attention_mask": [1] * 8}


def test_tools_are_part_of_the_prompt():
    plain = TOKENIZER.apply_chat_template(MESSAGES)
    assert TOKENIZER.apply_chat_template(MESSAGES, tools=[{"name": "f"}])[-len(plain) :] == plain
    assert len(TOKENIZER.apply_chat_template(MESSAGES, tools=[{"name": "f"}])) == len(plain) + len(
        'tool:{"name": "f"}\n'
    )


def test_a_longer_conversation_only_appends():
    longer = [*MESSAGES, {"role": "assistant", "content": "x"}, {"role": "tool", "content": "y"}]
    rendered = [TOKENIZER.apply_chat_template(longer[:count], tokenize=False) for count in (1, 2, 3)]
    assert rendered[2].startswith(rendered[1])
    assert rendered[1].startswith(rendered[0])


@pytest.mark.parametrize("path", [None, "anything"])
def test_any_path_loads_it(path):
    assert load_tokenizer(path, trust_remote_code=False).encode("a") == [2]
