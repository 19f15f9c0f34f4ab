"""A model of the Llama architecture with 84,000 weights, random ones: nothing is downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rl_demo.tokenizer import END, PAD, VOCABULARY, build_tokenizer

_INITIAL_SPREAD: Final = 0.08
"""Standard deviation of the weights. The usual 0.02 is for wide models; one of width 64 then needs half as long again."""


def save_model(folder: Path, seed: int) -> int:
    """Write weights, configuration and tokenizer as ``from_pretrained`` reads them.

    Args:
        folder: made if need be.
        seed: of the weights.

    Returns:
        Number of weights.
    """
    import torch  # noqa: PLC0415 - heavy, and discovery of the command must not pay for it
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415

    config = LlamaConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
        initializer_range=_INITIAL_SPREAD,
        tie_word_embeddings=False,
        pad_token_id=VOCABULARY[PAD],
        bos_token_id=None,
        eos_token_id=VOCABULARY[END],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())
