"""A tokenizer of seventeen tokens: digits, signs, one word, and what a chat needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rl_demo.teacher import SO

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, USER, ASSISTANT, END = "<|pad|>", "<|user|>", "<|assistant|>", "<|end|>"
WORDS: Final = (*"0123456789", "+", "=", SO)
VOCABULARY: Final = {word: number for number, word in enumerate((PAD, USER, ASSISTANT, END, *WORDS))}

CHAT_TEMPLATE: Final = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}"
    "<|assistant|>{% generation %}{{ message['content'] }}<|end|>{% endgeneration %}"
    "{% else %}<|user|>{{ message['content'] }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""Each turn only appends, so what the model is asked is the beginning of what it was taught."""


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer with its chat template; ``<|end|>`` ends an answer."""
    # Heavy, and discovery of the command must not pay for it.
    from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers  # noqa: PLC0415
    from tokenizers.models import WordLevel  # noqa: PLC0415
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    tokenizer = Tokenizer(WordLevel(vocab=VOCABULARY))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(f"{SO}|."), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([PAD, USER, ASSISTANT, END])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[USER, ASSISTANT],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=64,
    )
