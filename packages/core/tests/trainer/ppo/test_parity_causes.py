"""Planted mistakes: tokens drawn from known distributions, spoiled in one known way, and the cause that is found."""

import math
from dataclasses import replace

import pytest
import torch
from rl_core.trainer.ppo.parity_causes import Setting, find_cause
from rl_core.trainer.ppo.parity_fit import fit_temperature
from rl_core.trainer.ppo.parity_tokens import ParityTokens

VOCABULARY, ROWS, LENGTH = 200, 12, 40


class World:
    """Rows of next-token distributions that differ from token to token, sharp ones and flat ones."""

    def __init__(self, seed, *, rows=ROWS, length=LENGTH):
        self.generator = torch.Generator().manual_seed(seed)
        size = rows * length
        sharpness = 0.5 + 4 * self.random(size, 1)
        self.logits = sharpness * self.normal(size, VOCABULARY)
        self.row = torch.arange(rows).repeat_interleave(length)
        self.position = torch.arange(length).repeat(rows)

    def random(self, *size):
        return torch.rand(*size, generator=self.generator, dtype=torch.float64)

    def normal(self, *size):
        return torch.randn(*size, generator=self.generator, dtype=torch.float64)

    def tokens(self, rollout, trainer, *, with_moments=True):
        """Drawn from the log-distribution ``rollout``, scored by both."""
        drawn = torch.multinomial(rollout.exp(), 1, generator=self.generator)
        p = trainer.exp()
        return ParityTokens(
            rollout=rollout.gather(1, drawn)[:, 0],
            trainer=trainer.gather(1, drawn)[:, 0],
            row=self.row,
            position=self.position,
            token=drawn[:, 0],
            is_current=torch.ones(len(drawn), dtype=torch.bool),
            version=torch.zeros(len(drawn), dtype=torch.int64),
            entropy=-(p * trainer).sum(1) if with_moments else None,
            sum_pi_squared=p.square().sum(1) if with_moments else None,
        )


def normalized(logits):
    return torch.log_softmax(logits, dim=-1)


def kept(log_probs, top_p):
    """What ``top_p`` leaves, normalised."""
    order = log_probs.argsort(dim=1, descending=True)
    p = log_probs.exp().gather(1, order)
    out = torch.zeros_like(p, dtype=torch.bool).scatter(1, order, p.cumsum(1) - p >= top_p)
    return normalized(log_probs.masked_fill(out, -math.inf))


@pytest.fixture(params=range(3))
def world(request):
    return World(request.param)


@pytest.mark.parametrize("with_moments", [True, False])
@pytest.mark.parametrize("drawn_at", [0.6, 0.8, 1.25, 1.6])
def test_a_temperature_is_found_and_measured(world, drawn_at, with_moments):
    tokens = world.tokens(normalized(world.logits / drawn_at), normalized(world.logits), with_moments=with_moments)
    fit = fit_temperature(tokens)
    assert fit.is_measured is with_moments
    if with_moments:
        assert 1 / fit.ratio == pytest.approx(drawn_at, rel=0.03)
        cause = find_cause(tokens, Setting())
        assert cause.name == "temperature"
        assert "the trainer uses 1" in cause.evidence
        assert cause.share > 0.8
    else:
        assert (fit.ratio > 1) is (drawn_at < 1)


def test_entropies_alone_measure_a_temperature_too(world):
    for drawn_at, rel in ((1.05, 0.01), (0.8, 0.02), (0.6, 0.1)):
        tokens = world.tokens(normalized(world.logits / drawn_at), normalized(world.logits))
        fit = fit_temperature(replace(tokens, sum_pi_squared=None))
        assert 1 / fit.ratio == pytest.approx(drawn_at, rel=rel)


def test_without_entropies_a_temperature_shows_where_these_hardly_vary(world):
    logits = world.normal(ROWS * LENGTH, VOCABULARY)
    tokens = world.tokens(normalized(logits / 0.7), normalized(logits), with_moments=False)
    cause = find_cause(tokens, Setting())
    assert cause.name == "temperature"
    assert "roughly" in cause.evidence
    assert "calculate_entropy=true" in cause.advice


def test_raw_log_probs_are_named(world):
    drawn_at = 0.7
    tokens = world.tokens(normalized(world.logits), normalized(world.logits / drawn_at))
    cause = find_cause(tokens, Setting(temperature=drawn_at))
    assert cause.name == "temperature"
    assert "logprobs_mode=processed_logprobs" in cause.advice


def test_many_tokens_are_fitted_by_a_part_of_them(world, monkeypatch):
    tokens = world.tokens(normalized(world.logits / 0.8), normalized(world.logits))
    whole = fit_temperature(tokens)
    monkeypatch.setattr("rl_core.trainer.ppo.parity_fit._MOST_TOKENS", 100)
    part = fit_temperature(tokens)
    assert part != whole
    assert part.ratio == pytest.approx(whole.ratio, rel=0.01)


def test_an_exact_fit_by_hand():
    # Two outcomes of equal probability: every re-scaling leaves them as they are, so nothing is explained.
    half = torch.full((2,), math.log(0.5), dtype=torch.float64)
    zero = torch.zeros(2, dtype=torch.int64)
    same = ParityTokens(half, half, zero, zero, zero, zero.bool(), zero, -half, torch.full((2,), 0.5).double())
    assert fit_temperature(same).ratio == 1.0
    assert fit_temperature(same).share == 0.0
    # p = (3/4, 1/4) against p^2 normalised, (9/10, 1/10): the proportion is 2, where the parabola is exact.
    trainer = torch.tensor([0.75, 0.25], dtype=torch.float64).log()
    rollout = torch.tensor([0.9, 0.1], dtype=torch.float64).log()
    entropy = -(trainer.exp() * trainer).sum().expand(2)
    doubled = replace(
        same, rollout=rollout, trainer=trainer, entropy=entropy, sum_pi_squared=torch.full((2,), 0.625).double()
    )
    assert fit_temperature(doubled).ratio == pytest.approx(2, rel=1e-4)
    assert fit_temperature(doubled).share == pytest.approx(1)


def test_a_filter_that_was_asked_for_and_one_that_was_not(world):
    policy = normalized(world.logits)
    tokens = world.tokens(kept(policy, 0.8), policy)
    asked = find_cause(tokens, Setting(top_p=0.8))
    assert asked.name == "filtered sampling"
    assert "top_p 0.8" in asked.evidence
    silent = find_cause(tokens, Setting())
    assert silent.name == "smaller vocabulary"
    assert "generation_config.json" in silent.advice


def test_a_filter_does_not_excuse_other_weights(world):
    policy = normalized(world.logits)
    other = kept(normalized(world.logits + 2 * world.normal(*world.logits.shape)), 0.9)
    assert find_cause(world.tokens(other, policy), Setting(top_p=0.9)).name == "other weights"


@pytest.mark.parametrize("by", [1, -1])
def test_log_probs_that_stand_beside_their_tokens(world, by):
    policy = normalized(world.logits)
    tokens = world.tokens(policy, policy)
    shifted = tokens.rollout.view(ROWS, LENGTH).roll(by, dims=1).reshape(-1)
    cause = find_cause(replace(tokens, rollout=shifted), Setting())
    assert cause.name == "shifted by one"
    assert ("of the next one" in cause.evidence) is (by == -1)


def test_stale_weights_of_one_replica(world):
    policy = normalized(world.logits)
    stale = normalized(world.logits + 1.0 * world.normal(*world.logits.shape))
    is_stale = (world.row % 4 == 1)[:, None]
    cause = find_cause(world.tokens(torch.where(is_stale, stale, policy), policy), Setting())
    assert cause.name == "stale weights in part"
    assert "3 of 12 responses have the gap" in cause.evidence
    assert "rows 1, 5, 9" in cause.evidence


def test_other_weights_everywhere(world):
    policy = normalized(world.logits)
    others = [normalized(world.logits + scale * world.normal(*world.logits.shape)) for scale in (0.7, 2.0)]
    unrelated = normalized(4 * world.normal(*world.logits.shape))
    for other in (*others, unrelated):
        for with_moments in (True, False):
            tokens = world.tokens(other, policy, with_moments=with_moments)
            assert find_cause(tokens, Setting()).name == "other weights"


def test_an_error_that_grows_along_the_response(world):
    policy = normalized(world.logits)
    size = (world.position / LENGTH)[:, None] ** 2 * 2
    cause = find_cause(
        world.tokens(normalized(world.logits + size * world.normal(*world.logits.shape)), policy), Setting()
    )
    assert cause.name == "position"


def test_positions_that_are_wrong_from_a_token_on(world):
    policy = normalized(world.logits)
    size = (world.position >= 24)[:, None] * 1.0
    cause = find_cause(
        world.tokens(normalized(world.logits + size * world.normal(*world.logits.shape)), policy), Setting()
    )
    assert cause.name == "position"
    assert "from about token 21 on" in cause.evidence or "from about token 27 on" in cause.evidence


def test_only_the_first_token(world):
    policy = normalized(world.logits)
    size = (world.position == 0)[:, None] * 1.5
    other = normalized(world.logits + size * world.normal(*world.logits.shape))
    assert find_cause(world.tokens(other, policy), Setting()).name == "first token"


def test_logits_in_bfloat16(world):
    rough = normalized(world.logits.to(torch.bfloat16).double())
    cause = find_cause(world.tokens(rough, normalized(world.logits)), Setting())
    assert cause.name == "precision"
    assert "to both sides" in cause.evidence


@pytest.mark.parametrize(("dtype", "name"), [(torch.bfloat16, "bfloat16"), (torch.float16, "float16")])
def test_log_probs_that_were_rounded_on_their_way(world, dtype, name):
    policy = normalized(world.logits)
    tokens = world.tokens(policy, policy)
    cause = find_cause(replace(tokens, rollout=tokens.rollout.to(dtype).double()), Setting())
    assert cause.name == "precision"
    assert f"the generator's log-probs are rounded to {name}" in cause.evidence


def test_nothing_to_explain(world):
    policy = normalized(world.logits)
    assert find_cause(world.tokens(policy.float().double(), policy), Setting()).name == "none"


def test_too_few_tokens_and_no_numbers(world):
    policy = normalized(world.logits)
    tokens = world.tokens(normalized(world.logits / 0.5), policy)
    assert find_cause(tokens.where(torch.arange(len(tokens)) < 5), Setting()).name == "unknown"
    spoiled = tokens.trainer.clone()
    spoiled[3] = -math.inf
    cause = find_cause(replace(tokens, trainer=spoiled), Setting())
    assert (cause.name, "1 of the trainer" in cause.evidence) == ("not a number", True)
