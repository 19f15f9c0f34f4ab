"""Which attention is taken; the kernels themselves are tested where they are."""

import logging
from types import SimpleNamespace

import pytest
import torch
from rl_engine import attention
from rl_engine.attention import choose_attention
from rl_engine.packed_attention import PACKED
from rl_engine.varlen_attention import VARLEN, fits
from rl_testing.models import tiny_model

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def config(implementation="sdpa"):
    found = SimpleNamespace(_attn_implementation=implementation, model_type="x")
    found.get_text_config = lambda: found
    return found


def test_other_attention_is_left_alone():
    found = config("eager")
    assert choose_attention(found, CPU, torch.float32, lambda: torch.zeros(1)) == "eager"
    assert found._attn_implementation == "eager"


@pytest.mark.parametrize("second", ["other numbers", "an error"])
def test_a_model_that_does_not_come_to_the_same_keeps_what_it_has(second, caplog):
    found = config()

    def hidden_states() -> torch.Tensor:
        if found._attn_implementation == "sdpa":
            return torch.zeros(3)
        if second == "an error":
            raise AttributeError("'Layout' object has no attribute 'shape'")
        return torch.ones(3)

    with caplog.at_level(logging.INFO, attention.__name__):
        assert choose_attention(found, CPU, torch.float32, hidden_states) == "sdpa"
    assert found._attn_implementation == "sdpa"
    assert "other hidden states, by 1" in caplog.text if second == "other numbers" else "no attribute" in caplog.text
    assert "whole packs with a mask" in caplog.text


def test_on_a_gpu_in_half_precision_the_variable_length_kernel_comes_first():
    found = config()
    assert choose_attention(found, GPU, torch.bfloat16, lambda: torch.zeros(3)) == VARLEN


@pytest.fixture
def libraries(monkeypatch):
    """Say which flash-attn libraries are installed."""

    def libraries(*versions: int) -> None:
        monkeypatch.setattr(attention, "is_flash_attn_3_available", lambda: 3 in versions)
        monkeypatch.setattr(attention, "is_flash_attn_2_available", lambda: 2 in versions)

    return libraries


@pytest.mark.parametrize(
    ("versions", "expected"), [((2, 3), "flash_attention_3"), ((2,), "flash_attention_2"), ((), VARLEN)]
)
def test_an_installed_library_comes_first(libraries, versions, expected):
    libraries(*versions)
    assert choose_attention(config(), GPU, torch.bfloat16, lambda: torch.zeros(3)) == expected


@pytest.mark.parametrize(("device", "dtype"), [(CPU, torch.bfloat16), (GPU, torch.float32)])
def test_libraries_are_for_half_precision_on_a_gpu(libraries, device, dtype):
    libraries(2, 3)
    assert choose_attention(config(), device, dtype, lambda: torch.zeros(3)) == PACKED


def test_libraries_that_cannot_be_used_give_way(libraries, caplog):
    libraries(2, 3)
    found = config()

    def hidden_states() -> torch.Tensor:
        if found._attn_implementation == "flash_attention_3":
            raise ImportError("undefined symbol")
        return torch.ones(3) if found._attn_implementation == "flash_attention_2" else torch.zeros(3)

    with caplog.at_level(logging.INFO, attention.__name__):
        assert choose_attention(found, GPU, torch.bfloat16, hidden_states) == VARLEN
    assert "with flash_attention_3: ImportError: undefined symbol" in caplog.text
    assert "with flash_attention_2: it comes to other hidden states" in caplog.text


def test_a_kernel_that_fails_gives_way_to_the_next():
    found = config()

    def hidden_states() -> torch.Tensor:
        if found._attn_implementation == VARLEN:
            raise RuntimeError("head dimension 300 is too large")
        return torch.zeros(3)

    assert choose_attention(found, GPU, torch.bfloat16, hidden_states) == PACKED


def test_half_precision_may_round_differently_and_a_wrong_neighbour_is_more_than_that():
    for gap, expected in ((0.04, VARLEN), (0.5, "sdpa")):
        found = config()

        def hidden_states(found=found, gap=gap) -> torch.Tensor:
            return torch.ones(3) if found._attn_implementation == "sdpa" else torch.ones(3) + gap

        assert choose_attention(found, GPU, torch.bfloat16, hidden_states) == expected


def test_what_the_variable_length_kernel_is_for():
    model = tiny_model("qwen2").config
    assert fits(model, GPU, torch.bfloat16)
    assert not fits(model, GPU, torch.float32)
    assert not fits(model, CPU, torch.bfloat16)
    model.attention_chunk_size = 8
    assert not fits(model, GPU, torch.bfloat16)
