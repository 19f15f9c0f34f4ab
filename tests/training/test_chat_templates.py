"""What is learned of a conversation, with a real tokenizer and real templates."""

import pytest
from rl_core.data.assistant_mask import ConversationEncoder
from rl_core.errors import DataError
from rl_testing.models import CHAT_TEMPLATE, tiny_tokenizer

CONVERSATION = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "sure?"},
    {"role": "assistant", "content": "yes\n"},
]
LEARNED = ["4<|im_end|>", "yes\n<|im_end|>"]
MARKING = (
    "{%- for message in messages %}{%- if message['role'] == 'assistant' %}<|im_start|>assistant\n"
    "{% generation %}{{ message['content'] }}<|im_end|>{% endgeneration %}\n"
    "{% else %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endif %}{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MARKING_WORDS = MARKING.replace("<|im_end|>{% endgeneration %}\n", "{% endgeneration %}{{ '<|im_end|>\n' }}")
WITH_BOS = "<|endoftext|>" + CHAT_TEMPLATE
WITHOUT_EARLIER_THOUGHTS = CHAT_TEMPLATE.replace(
    "{{ message['content'] }}",
    "{{ message['content'] if loop.last or message['role'] == 'user' else message['content'].split('</think>')[-1] }}",
)


def encoder(template):
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    return tokenizer, ConversationEncoder(tokenizer, {})


def spans(tokenizer, ids, mask):
    """Texts of the runs of learned tokens."""
    found, inside = [], False
    for token, mark in zip(ids, mask, strict=True):
        if mark and not inside:
            found.append([])
        if mark:
            found[-1].append(token)
        inside = mark
    return [tokenizer.decode(span) for span in found]


@pytest.mark.parametrize("eos", ["<|im_end|>", "<|endoftext|>"])
@pytest.mark.parametrize(
    "template",
    [CHAT_TEMPLATE, MARKING, MARKING_WORDS, WITH_BOS],
    ids=["plain", "marking", "marking only the words", "with BOS"],
)
def test_turns_with_the_token_that_ends_them(template, eos):
    tokenizer, encode = encoder(template)
    tokenizer.eos_token = eos
    ids, mask = encode.encode(0, CONVERSATION, None)
    assert spans(tokenizer, ids, mask) == LEARNED
    assert ids == tokenizer.apply_chat_template(CONVERSATION, tokenize=True, return_dict=False)
    assert tokenizer.decode(ids).count("<|endoftext|>") == (template is WITH_BOS)
    assert encode.notes() == []


def test_tools_stand_in_front():
    tokenizer, encode = encoder(CHAT_TEMPLATE)
    tool = {"type": "function", "function": {"name": "calc", "parameters": {"type": "object", "properties": {}}}}
    ids, mask = encode.encode(0, CONVERSATION, [tool])
    assert spans(tokenizer, ids, mask) == LEARNED
    assert '"calc"' in tokenizer.decode(ids)


def test_a_template_that_drops_earlier_thoughts():
    tokenizer, encode = encoder(WITHOUT_EARLIER_THOUGHTS)
    thought = {"role": "assistant", "content": "hm</think>4"}
    ids, mask = encode.encode(0, [CONVERSATION[1], thought], None)
    assert spans(tokenizer, ids, mask) == ["hm</think>4<|im_end|>"]
    # Within a longer conversation it would be learned without its thought, so nobody would know what was learned.
    with pytest.raises(DataError, match=r"row 7: the chat template renders message 1 differently .*hm</think>4"):
        encode.encode(7, [CONVERSATION[1], thought, *CONVERSATION[3:]], None)
