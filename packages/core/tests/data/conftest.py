"""A tokenizer of single characters whose template writes ``<u>text<e>`` and a newline for each message."""

import re
from types import SimpleNamespace
from typing import ClassVar

import pytest

SPECIAL = {"<bos>": 1, "<e>": 2, "<u>": 3, "<a>": 4, "<t>": 5, "<s>": 6}
NAMES = {number: name for name, number in SPECIAL.items()}
OPENING = {"user": "<u>", "assistant": "<a>", "tool": "<t>", "system": "<s>"}
MELTED = 7
"""Two newlines as one token, where the tokenizer has it."""


class Toy:
    """``melts`` makes two newlines one token; ``bos`` puts that token in front of every text; ``turn`` opens a turn."""

    chat_template = "messages"
    eos_token_id = 2
    all_special_ids = (1, 2)
    special_tokens_map: ClassVar = {"bos_token": "<bos>", "eos_token": "<e>"}
    added_tokens_decoder: ClassVar = {n: SimpleNamespace(content=name, special=True) for n, name in NAMES.items()}

    def __init__(self, *, melts=False, bos=False, turn="<a>"):
        self.melts = melts
        self.bos = bos
        self.turn = turn

    def encode(self, text, add_special_tokens=True):
        pieces = re.findall("<[a-z]+>|\n\n|." if self.melts else "<[a-z]+>|.", text, flags=re.DOTALL)
        ids = [SPECIAL.get(piece, MELTED if piece == "\n\n" else ord(piece[0])) for piece in pieces]
        return [1, *ids] if self.bos and add_special_tokens else ids

    def decode(self, ids, skip_special_tokens=False):
        assert not skip_special_tokens
        return "".join(NAMES.get(number) or ("\n\n" if number == MELTED else chr(number)) for number in ids)

    def get_chat_template(self, chat_template, tools):
        assert chat_template is None
        return self.chat_template

    def text(self, messages, tools, opens):
        shown = "".join(f"<s>{tool['name']}<e>\n" for tool in tools or ())
        turns = "".join(f"{OPENING[m['role']]}{m['content']}<e>\n" for m in messages).replace("<a>", self.turn)
        return "<bos>" * self.bos + shown + turns + self.turn * opens

    def apply_chat_template(self, messages, *, tools, tokenize, add_generation_prompt=False, return_dict=False, **_):
        assert not return_dict
        text = self.text(messages, tools, add_generation_prompt)
        return self.encode(text, add_special_tokens=False) if tokenize else text


def _learned(tokenizer, encoded):
    """The text with what is learned in brackets, which no message here contains."""
    shown, inside = "", False
    for number, mark in zip(*encoded, strict=True):
        shown += ("[" if mark and not inside else "") + ("]" if inside and not mark else "")
        inside = bool(mark)
        shown += tokenizer.decode([number])
    return shown + "]" * inside


@pytest.fixture
def toy():
    """The class of the tokenizer."""
    return Toy


@pytest.fixture
def learned():
    """Shows which characters of a conversation are learned."""
    return _learned
