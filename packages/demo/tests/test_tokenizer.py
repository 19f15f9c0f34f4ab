import json

import pytest
from rl_core.data.assistant_mask import ConversationEncoder
from rl_demo.files import write_data
from rl_demo.problems import split_problems
from rl_demo.tokenizer import VOCABULARY
from transformers import AutoTokenizer


@pytest.mark.parametrize("text", ["47+38=", "7+8=15 so 85", "198", ""])
def test_texts_come_back(text, tokenizer):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert len(ids) == len(text.replace(" so ", "."))


def test_every_text_of_the_data_comes_back(tokenizer, tmp_path):
    files = write_data(tmp_path, split_problems(1), seed=1)
    for line in files.sft.read_text().splitlines()[:500]:
        for message in json.loads(line)["messages"]:
            assert tokenizer.decode(tokenizer.encode(message["content"])) == message["content"]


def test_a_conversation_begins_with_its_question_and_the_answer_is_learned(tokenizer):
    question = [{"role": "user", "content": "47+38="}]
    answer = [{"role": "assistant", "content": "7+8=15 so 85"}]
    prompt = tokenizer.apply_chat_template(question, tokenize=True, return_dict=False, add_generation_prompt=True)
    ids, mask = ConversationEncoder(tokenizer, {}).encode(0, question + answer, None)
    assert tokenizer.decode(prompt) == "<|user|>47+38=<|assistant|>"
    assert ids[: len(prompt)] == prompt
    assert mask == [False] * len(prompt) + [True] * 10
    assert tokenizer.decode([token for token, learned in zip(ids, mask, strict=True) if learned]) == (
        "7+8=15 so 85<|end|>"
    )


def test_what_is_saved_is_what_is_loaded(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.encode("7+8=15 so 85<|end|>") == tokenizer.encode("7+8=15 so 85<|end|>")
    assert loaded.chat_template == tokenizer.chat_template
    assert (loaded.eos_token_id, loaded.pad_token_id) == (VOCABULARY["<|end|>"], VOCABULARY["<|pad|>"])
    assert loaded.decode(loaded.encode("85<|end|>"), skip_special_tokens=True) == "85"
