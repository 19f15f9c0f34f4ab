"""Real models of a few thousand weights, saved as Hugging Face folders, for tests that must not download anything.

The weights are random but spread wide (``initializer_range``), so that the most likely token is clearly ahead of the
second and engines with different arithmetic agree on it. The tokenizer works on bytes, so every text has ids::

    id   0 .. 255   256      257              258             259             260 .. vocab_size - 1
         bytes      <|pad|>  <|endoftext|>    <|im_start|>    <|im_end|>      never produced by a text, as in real models
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

Head = Literal["causal_lm", "token_classification", "sequence_classification"]

PAD, END_OF_TEXT, TURN_START, TURN_END = "<|pad|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"
PAD_ID, END_OF_TEXT_ID, TURN_START_ID, TURN_END_ID = range(256, 260)
VOCAB_SIZE: Final = 300

CHAT_TEMPLATE: Final = (
    "{%- if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{%- for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Each turn only appends, so a longer conversation starts with the ids of a shorter one."""

_AUTO_CLASSES: Final[dict[str, Any]] = {
    "causal_lm": AutoModelForCausalLM,
    "token_classification": AutoModelForTokenClassification,
    "sequence_classification": AutoModelForSequenceClassification,
}


def save_tiny_model(
    directory: str | Path,
    *,
    model_type: str = "qwen2",
    head: Head = "causal_lm",
    tie_word_embeddings: bool = False,
    vocab_size: int = VOCAB_SIZE,
    hidden_size: int = 64,
    num_layers: int = 2,
    num_heads: int = 4,
    num_key_value_heads: int = 2,
    initializer_range: float = 0.2,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    with_tokenizer: bool = True,
    **config: Any,
) -> Path:
    """Save a random model (and its tokenizer) as ``from_pretrained`` reads them.

    Args:
        directory: made when it is not there.
        model_type: any decoder that transformers knows by that name: ``qwen2``, ``llama``, ``gpt2``, ``mistral``, ...
        head: what stands on the backbone; the two classifications have one label.
        tie_word_embeddings: whether the output layer is the embedding.
        vocab_size: rows of the embedding; the ids that end a turn and pad are only named when it has them.
        hidden_size: width of the model; its feed-forward part is twice as wide.
        num_layers: decoder layers.
        num_heads: attention heads.
        num_key_value_heads: heads of keys and values, where the architecture has fewer of them.
        initializer_range: standard deviation of the weights.
        dtype: of the saved weights.
        seed: of the weights; equal arguments give equal files.
        with_tokenizer: save the tokenizer beside the weights.
        config: further fields of the model's configuration.

    Returns:
        ``directory`` as a path.
    """
    path = Path(directory)
    model = tiny_model(
        model_type,
        head=head,
        tie_word_embeddings=tie_word_embeddings,
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads,
        num_key_value_heads=num_key_value_heads,
        initializer_range=initializer_range,
        dtype=dtype,
        seed=seed,
        **config,
    )
    if head == "causal_lm" and vocab_size > TURN_END_ID:
        # Like chat models do, the checkpoint names two ids that end a response.
        model.generation_config = GenerationConfig(pad_token_id=PAD_ID, eos_token_id=[TURN_END_ID, END_OF_TEXT_ID])
    model.save_pretrained(path)
    if with_tokenizer:
        tiny_tokenizer().save_pretrained(path)
    return path


def tiny_model(
    model_type: str = "qwen2",
    *,
    head: Head = "causal_lm",
    vocab_size: int = VOCAB_SIZE,
    hidden_size: int = 64,
    num_layers: int = 2,
    num_heads: int = 4,
    num_key_value_heads: int = 2,
    initializer_range: float = 0.2,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    **config: Any,
) -> PreTrainedModel:
    """A random model in evaluation mode; arguments as for ``save_tiny_model``. Leaves the global random state alone."""
    sizes: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": hidden_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": num_heads,
        "num_key_value_heads": num_key_value_heads,
        "intermediate_size": 2 * hidden_size,
        "max_position_embeddings": 1024,
        "initializer_range": initializer_range,
        "pad_token_id": PAD_ID if vocab_size > PAD_ID else None,
        "bos_token_id": None,
        "eos_token_id": TURN_END_ID if vocab_size > TURN_END_ID else None,
        "num_labels": 1,
        "dtype": dtype,
    }
    settings: PreTrainedConfig = AutoConfig.for_model(model_type, **(_renamed(model_type, sizes) | config))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = _AUTO_CLASSES[head].from_config(settings, dtype=dtype)
    return model.eval()


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """The byte tokenizer with a chat template; ``<|im_end|>`` ends a turn."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE(vocab={character: number for number, character in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([PAD, END_OF_TEXT, TURN_START, TURN_END])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=TURN_END,
        additional_special_tokens=[END_OF_TEXT, TURN_START],
        chat_template=CHAT_TEMPLATE,
        model_max_length=1024,
        clean_up_tokenization_spaces=False,
    )


def _renamed(model_type: str, sizes: dict[str, Any]) -> dict[str, Any]:
    """The sizes under the names that old architectures give them; what they cannot have is left out."""
    if model_type != "gpt2":
        return sizes
    names = {
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
        "intermediate_size": "n_inner",
    }
    renamed = {names.get(name, name): value for name, value in sizes.items() if name != "num_key_value_heads"}
    # Random numbers drawn by dropout would depend on how a batch was cut.
    return renamed | {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
