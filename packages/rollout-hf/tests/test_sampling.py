from __future__ import annotations

import math

import pytest
import rl_rollout_hf.sampling
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.contracts.rollout import SamplingParams
from rl_rollout_hf.sampling import as_rows, draw

CPU = torch.device("cpu")
# Probabilities 1/2, 1/4, 1/8, 1/8.
LOGITS = torch.tensor([math.log(4), math.log(2), 0.0, 0.0])


def drawn(logits, params, uniforms, forbidden=(), **options):
    rows = as_rows(params, logits.shape[-1], CPU)
    return draw(logits, rows, torch.tensor(uniforms, dtype=torch.float64), forbidden, **options)


def draw_one(uniform, forbidden=(), **params):
    draws = drawn(LOGITS[None], [SamplingParams(**params)], [uniform], [(0, forbidden)] if forbidden else ())
    return int(draws.tokens), float(draws.log_probs)


@pytest.mark.parametrize(
    ("uniform", "token", "probability"),
    [(0.0, 0, 1 / 2), (0.499, 0, 1 / 2), (0.501, 1, 1 / 4), (0.76, 2, 1 / 8), (0.88, 3, 1 / 8), (1 - 2**-53, 3, 1 / 8)],
)
def test_a_token_has_its_share_of_the_uniform_numbers(uniform, token, probability):
    assert draw_one(uniform) == (token, pytest.approx(math.log(probability)))


def test_temperature_divides_the_logits():
    # At temperature 1/2 the weights 4, 2, 1, 1 become 16, 4, 1, 1.
    assert draw_one(0.70, temperature=0.5) == (0, pytest.approx(math.log(16 / 22)))
    assert draw_one(0.75, temperature=0.5) == (1, pytest.approx(math.log(4 / 22)))


def test_temperature_zero_takes_the_likeliest_whose_distribution_is_one_point():
    assert draw_one(0.99, temperature=0.0) == (0, 0.0)


def test_top_k_keeps_the_likeliest_and_ranks_equals_by_id():
    assert draw_one(0.99, top_k=2) == (1, pytest.approx(math.log(1 / 3)))
    assert draw_one(0.99, top_k=3) == (2, pytest.approx(math.log(1 / 7)))
    assert draw_one(0.99, top_k=100) == draw_one(0.99)


@pytest.mark.parametrize(("top_p", "kept"), [(0.01, 1), (0.5, 1), (0.51, 2), (0.75, 2), (0.76, 3), (0.9, 4), (1.0, 4)])
def test_top_p_keeps_the_smallest_set_that_has_at_least_so_much(top_p, kept):
    weights = [4, 2, 1, 1][:kept]
    assert draw_one(1 - 2**-53, top_p=top_p) == (kept - 1, pytest.approx(math.log(weights[-1] / sum(weights))))


def test_top_p_is_a_share_of_what_top_k_leaves():
    # Of the weights 4 and 2, the first alone has 2/3.
    assert draw_one(0.99, top_k=2, top_p=0.66) == (0, 0.0)
    assert draw_one(0.99, top_k=2, top_p=0.67) == (1, pytest.approx(math.log(1 / 3)))


def test_forbidden_tokens_are_left_out_before_everything_else():
    assert draw_one(0.0, forbidden=(0,)) == (1, pytest.approx(math.log(1 / 2)))
    assert draw_one(0.0, forbidden=(0, 1), temperature=0.0) == (2, 0.0)
    assert draw_one(0.99, forbidden=(0,), top_k=1) == (1, 0.0)


def test_tokens_without_probability_are_never_drawn():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]]).expand(4, -1)
    draws = drawn(logits, [SamplingParams()] * 4, [0.0, 0.4999, 0.5, 1 - 2**-53])
    assert draws.tokens.tolist() == [1, 1, 3, 3]


def test_every_row_has_its_own_parameters():
    params = [
        SamplingParams(),
        SamplingParams(temperature=0.0),
        SamplingParams(top_k=1),
        SamplingParams(temperature=0.5),
        SamplingParams(top_p=0.5, temperature=2.0),
    ]
    uniforms = [0.9, 0.9, 0.9, 0.75, 0.9]
    together = drawn(LOGITS.expand(5, -1), params, uniforms, [(1, (0,)), (3, (1,))])
    for row, (one, uniform) in enumerate(zip(params, uniforms, strict=True)):
        banned = {1: (0,), 3: (1,)}.get(row, ())
        alone = drawn(LOGITS[None], [one], [uniform], [(0, banned)] if banned else ())
        assert int(together.tokens[row]) == int(alone.tokens)
        assert float(together.log_probs[row]) == float(alone.log_probs)


def test_parts_cover_the_batch_in_order(monkeypatch):
    monkeypatch.setattr(rl_rollout_hf.sampling, "_CHUNK_ELEMENTS", 150)
    parts = as_rows([SamplingParams(top_k=2)] * 11, 50, CPU)
    assert [(part.start, part.stop) for part in parts] == [(0, 3), (3, 6), (6, 9), (9, 11)]
    assert [len(part.filtered) for part in parts] == [3, 3, 3, 2]


def test_a_batch_in_chunks_is_the_batch(monkeypatch):
    logits = torch.randn(11, 50, generator=torch.Generator().manual_seed(0))
    params = [
        SamplingParams(temperature=[0.0, 1.0, 0.7][row % 3], top_k=[-1, 5][row % 2], top_p=[1.0, 0.8][row % 4 // 2])
        for row in range(11)
    ]
    uniforms, banned = [row / 11 for row in range(11)], [(2, (3, 4)), (10, (0,))]
    whole = drawn(logits, params, uniforms, banned)
    monkeypatch.setattr(rl_rollout_hf.sampling, "_CHUNK_ELEMENTS", 150)
    parts = drawn(logits, params, uniforms, banned)
    assert whole.tokens.tolist() == parts.tokens.tolist()
    assert whole.log_probs.tolist() == parts.log_probs.tolist()


def test_raw_log_probs_are_those_of_the_logits():
    params = [SamplingParams(temperature=0.5), SamplingParams(temperature=0.0), SamplingParams(top_k=1)]
    draws = drawn(LOGITS.expand(3, -1), params, [0.0, 0.0, 0.0], raw_log_probs=True)
    assert draws.log_probs.tolist() == pytest.approx([math.log(1 / 2)] * 3)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_numbers_are_said_of_their_row_alone(bad, temperature):
    logits = LOGITS.repeat(3, 1)
    logits[1, 2] = bad
    draws = drawn(logits, [SamplingParams(temperature=temperature)] * 3, [0.3] * 3)
    assert draws.is_sound.tolist() == [True, False, True]
    assert all(0 <= token < 4 for token in draws.tokens.tolist())


def test_the_dtype_of_the_logits_is_widened():
    wide = drawn(LOGITS[None].double(), [SamplingParams()], [0.0]).log_probs
    narrow = drawn(LOGITS[None].bfloat16(), [SamplingParams()], [0.0]).log_probs
    assert (wide.dtype, narrow.dtype) == (torch.float64, torch.float32)


def _reference(logits, one, uniform):
    """Token and log-prob by the definition, one number at a time."""
    weights = {token: math.exp(value / one.temperature) for token, value in enumerate(logits)}
    ranked = sorted(weights, key=lambda token: (-weights[token], token))
    if one.top_k > 0:
        ranked = ranked[: one.top_k]
    total, kept, share = sum(weights[token] for token in ranked), [], 0.0
    for token in ranked:
        kept.append(token)
        share += weights[token] / total
        if share >= one.top_p:
            break
    total, below = sum(weights[token] for token in kept), 0.0
    for token in sorted(kept):
        below += weights[token]
        if uniform * total < below:
            return token, math.log(weights[token] / total)
    raise AssertionError


@settings(max_examples=150, deadline=None)
@given(
    # Apart by more than the reference's rounding.
    logits=st.lists(st.integers(-80, 80).map(lambda tenths: tenths / 10), min_size=1, max_size=12, unique=True),
    temperature=st.sampled_from([0.3, 1.0, 2.0]),
    top_k=st.sampled_from([-1, 1, 3, 50]),
    top_p=st.sampled_from([1.0, 0.9, 0.37]),
    uniform=st.floats(0.001, 0.999),
)
def test_draws_are_those_of_the_definition(logits, temperature, top_k, top_p, uniform):
    one = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p)
    draws = drawn(torch.tensor([logits], dtype=torch.float64), [one], [uniform])
    token, log_prob = _reference(logits, one, uniform)
    assert int(draws.tokens) == token
    assert float(draws.log_probs) == pytest.approx(log_prob, abs=1e-9)
