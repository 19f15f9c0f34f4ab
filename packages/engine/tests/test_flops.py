"""Model FLOPs, by hand."""

import pytest
import torch
from rl_engine.flops import ModelFlops, model_flops
from transformers import AutoModelForCausalLM, Gemma3TextConfig, MistralConfig, Qwen2Config, Qwen3MoeConfig

SMALL = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 11}


def count(config, *, is_frozen=False):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return model_flops(model.base_model, config, head=model.get_output_embeddings(), is_frozen=is_frozen)


def test_every_weight_of_a_dense_model_once_but_the_embedding():
    flops = count(Qwen2Config(**SMALL, intermediate_size=16))
    # q and o 8x8, k and v 8x4; gate, up and down 8x16.
    assert flops.matrix_weights == 3 * (2 * 64 + 2 * 32 + 3 * 128)
    assert flops.head_weights == 8 * 11
    assert flops.pair_width == 3 * 8
    assert flops.windows == ()


@pytest.mark.parametrize("tied", [False, True])
def test_the_output_layer_counts_for_responses_alone_tied_or_not(tied):
    flops = count(Qwen2Config(**SMALL, intermediate_size=16, tie_word_embeddings=tied))
    without = flops.forward([10, 6], [0, 0])
    assert flops.forward([10, 6], [3, 1]) - without == 2 * 88 * 4


def test_of_the_experts_only_those_that_a_token_is_sent_to():
    config = Qwen3MoeConfig(
        **SMALL, head_dim=4, moe_intermediate_size=5, num_experts=4, num_experts_per_tok=2, intermediate_size=16
    )
    attention, router, expert = 2 * 64 + 2 * 32, 8 * 4, 3 * 8 * 5
    assert count(config).matrix_weights == 3 * (attention + router + 2 * expert)


def test_attention_over_a_window_stops_growing():
    flops = count(MistralConfig(**SMALL, intermediate_size=16, sliding_window=4))
    assert (flops.pair_width, flops.windows) == (0, ((4, 24),)) or flops.pair_width == 24
    by_hand = ModelFlops(matrix_weights=0, head_weights=0, pair_width=0, windows=((4, 24),))
    # Tokens see 1, 2, 3, 4, 4, 4 places: the half of the first is the diagonal's, as n * n / 2 counts it.
    assert by_hand.forward([6], [0]) == 4 * 24 * (4 * (6 - 2))
    assert by_hand.forward([3], [0]) == 4 * 24 * (9 / 2)


def test_layers_of_both_kinds():
    config = Gemma3TextConfig(**SMALL, head_dim=4, intermediate_size=16, sliding_window=4, layer_types=None)
    kinds = config.layer_types
    flops = count(config)
    assert flops.pair_width == kinds.count("full_attention") * 8
    assert flops.windows == ((4, kinds.count("sliding_attention") * 8),)


def test_a_backward_pass_is_two_forward_passes_and_one_less_for_frozen_matrices():
    whole = ModelFlops(matrix_weights=10, head_weights=0, pair_width=0)
    frozen = ModelFlops(matrix_weights=10, head_weights=0, pair_width=0, trained_share=0.0)
    assert whole.forward_backward([7], [1]) == 3 * whole.forward([7], [1]) == 3 * 140
    assert frozen.forward_backward([7], [1]) == 2 * 140
    attention = ModelFlops(matrix_weights=0, head_weights=0, pair_width=5, trained_share=0.0)
    assert attention.forward_backward([4], [1]) == 3 * attention.forward([4], [1]) == 3 * 4 * 5 * 8


def test_the_shape_that_the_benchmark_measures():
    flops = count(
        Qwen2Config(
            hidden_size=896,
            intermediate_size=4864,
            num_hidden_layers=24,
            num_attention_heads=14,
            num_key_value_heads=2,
            vocab_size=151_936,
            tie_word_embeddings=True,
        )
    )
    assert (flops.matrix_weights, flops.head_weights, flops.pair_width) == (357_826_560, 136_134_656, 21_504)
