import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.algorithms.aggregation import token_mean
from rl_core.algorithms.inputs import LossTotals
from rl_core.algorithms.logprobs import (
    chunked_log_probs,
    chunked_sum_pi_squared,
    response_log_probs,
    token_entropy,
    token_log_probs,
    token_sum_pi_squared,
)
from rl_core.algorithms.masks import masked_mean, masked_sum
from rl_core.errors import ConfigError, ShapeError
from torch.utils._python_dispatch import TorchDispatchMode

NAN, INF = float("nan"), float("inf")
LOGITS = torch.tensor(
    [[[0, 0, 0, 0], [0, math.log(2), 0, 0], [math.log(3), 0, 0, 0], [0, 0, math.log(5), 0]]], dtype=torch.float64
)
IDS = torch.tensor([[3, 0, 2, 1]])


def test_b29_row_t_predicts_token_t_plus_one():
    log_probs, entropy = response_log_probs(LOGITS, IDS, prompt_length=2)
    assert log_probs[0].tolist() == pytest.approx([math.log(1 / 5), math.log(1 / 6)])
    assert entropy.shape == (1, 2)


def test_b29_both_paths_divide_the_logits_by_the_temperature():
    log_probs, _ = response_log_probs(LOGITS, IDS, prompt_length=2, temperature=2.0)
    expected = [-math.log(3 + math.sqrt(2)), -math.log(3 + math.sqrt(3))]
    assert log_probs[0].tolist() == pytest.approx(expected)
    slow = token_log_probs(LOGITS[:, 1:3], IDS[:, 2:], temperature=2.0)
    assert slow[0].tolist() == pytest.approx(expected)


def test_b31_sampled_entropy_ignores_the_pads():
    log_probs = torch.tensor([[-0.5, -1.5, 1.0, 1.0]])
    mask = torch.tensor([[True, True, False, False]])
    assert masked_sum(-log_probs, mask).item() == 2.0
    assert masked_mean(-log_probs, mask).item() == 1.0


@pytest.mark.parametrize("pad", [0.0, -1e4, INF, NAN])
def test_b31_full_entropy_ignores_the_pads(pad):
    logits = torch.zeros(1, 4, 4)
    logits[:, 2:, 1] = pad
    mask = torch.tensor([[True, True, False, False]])
    totals = LossTotals.of(mask, 4)
    _, entropy = chunked_log_probs(logits, torch.zeros(1, 4, dtype=torch.int64))
    for values in (entropy, token_entropy(logits)):
        assert token_mean(values, mask, totals).item() == pytest.approx(math.log(4))


def test_b31_entropy_is_never_negative():
    logits = torch.tensor([[[80.0, 0.0, -INF], [5.0, -INF, -INF], [1e4, -1e4, 0.0]]])
    _, entropy = chunked_log_probs(logits, torch.zeros(1, 3, dtype=torch.int64))
    assert entropy.min().item() >= 0.0
    assert entropy[0, 1].item() == 0.0


def test_the_sum_of_squared_probabilities_by_hand():
    # Probabilities [1/4] * 4, [1, 2, 1, 1] / 5, [3, 1, 1, 1] / 6 and [1, 1, 5, 1] / 8.
    expected = [4 / 16, 7 / 25, 12 / 36, 28 / 64]
    assert token_sum_pi_squared(LOGITS)[0].tolist() == pytest.approx(expected)
    assert chunked_sum_pi_squared(LOGITS, chunk_size=3)[0].tolist() == pytest.approx(expected)


def test_the_sum_of_squared_probabilities_is_taken_at_the_temperature():
    # At temperature 1/2 the weights [1, 2, 1, 1] become [1, 4, 1, 1].
    for values in (token_sum_pi_squared(LOGITS, 0.5), chunked_sum_pi_squared(LOGITS, 0.5)):
        assert values[0, 1].item() == pytest.approx(19 / 49)


def test_a_certain_token_has_a_sum_of_one_and_an_excluded_one_adds_nothing():
    logits = torch.tensor([[1e4, -1e4, 0.0], [0.0, 0.0, -INF]], requires_grad=True)
    assert token_sum_pi_squared(logits).tolist() == [1.0, 0.5]
    chunked = chunked_sum_pi_squared(logits, chunk_size=1)
    assert chunked.tolist() == [1.0, 0.5]
    assert not chunked.requires_grad


def test_the_sum_of_squared_probabilities_gives_the_norm_of_the_score():
    logits = torch.randn(6, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    log_prob = token_log_probs(logits, torch.tensor(2))
    (score,) = torch.autograd.grad(log_prob, logits)
    expected = 1 - 2 * log_prob.exp() + token_sum_pi_squared(logits)
    assert score.square().sum().item() == pytest.approx(expected.item())


def _plain(logits, tokens, temperature):
    """Softmax by hand, in Python floats."""
    log_probs, entropies = [], []
    for row, token in zip(logits.reshape(-1, logits.shape[-1]).tolist(), tokens.reshape(-1).tolist(), strict=True):
        weights = [math.exp(z / temperature) for z in row]
        probs = [w / sum(weights) for w in weights]
        log_probs.append(math.log(probs[token]))
        entropies.append(-sum(p * math.log(p) for p in probs))
    return log_probs, entropies


@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(1, 3),
    width=st.integers(1, 4),
    vocab=st.integers(1, 6),
    chunk_size=st.integers(1, 13),
    temperature=st.floats(0.3, 3.0),
    seed=st.integers(0, 2**31),
)
def test_every_chunk_size_agrees_with_plain_python_and_its_gradient_with_autograd(
    rows, width, vocab, chunk_size, temperature, seed
):
    rng = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, width, vocab, dtype=torch.float64, generator=rng).requires_grad_()
    tokens = torch.randint(vocab, (rows, width), generator=rng)
    g1, g2 = torch.randn(2, rows, width, dtype=torch.float64, generator=rng)
    log_probs, entropy = chunked_log_probs(logits, tokens, temperature, chunk_size)
    plain_log_probs, plain_entropy = _plain(logits, tokens, temperature)
    assert log_probs.flatten().tolist() == pytest.approx(plain_log_probs, abs=1e-12)
    assert entropy.flatten().tolist() == pytest.approx(plain_entropy, abs=1e-12)
    squares = [sum(p * p for p in row) for row in (logits / temperature).softmax(-1).reshape(-1, vocab).tolist()]
    assert chunked_sum_pi_squared(logits, temperature, chunk_size).flatten().tolist() == pytest.approx(
        squares, abs=1e-12
    )

    (gradient,) = torch.autograd.grad((g1 * log_probs + g2 * entropy).sum(), logits)
    slow = g1 * token_log_probs(logits, tokens, temperature) + g2 * token_entropy(logits, temperature)
    (expected,) = torch.autograd.grad(slow.sum(), logits)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-12)


def test_gradcheck():
    logits = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    tokens = torch.randint(5, (2, 3))
    torch.autograd.gradcheck(lambda z: chunked_log_probs(z, tokens, 0.7, 2), logits)


def test_only_log_probs_or_only_entropy_may_be_used():
    logits = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    tokens = torch.randint(5, (2, 3))
    for i, slow in enumerate((token_log_probs(logits, tokens), token_entropy(logits))):
        (gradient,) = torch.autograd.grad(chunked_log_probs(logits, tokens)[i].sum(), logits)
        torch.testing.assert_close(gradient, torch.autograd.grad(slow.sum(), logits)[0])


def test_excluded_tokens_have_probability_zero_and_gradient_zero():
    logits = torch.tensor([[[0.0, 0.0, -INF]]], requires_grad=True)
    log_probs, entropy = chunked_log_probs(logits, torch.tensor([[0]]))
    (log_probs + entropy).sum().backward()
    assert log_probs.item() == pytest.approx(math.log(1 / 2))
    assert entropy.item() == pytest.approx(math.log(2))
    assert logits.grad[0, 0].tolist() == pytest.approx([0.5, -0.5, 0.0])


def test_half_precision_is_scored_in_float32_and_the_gradient_is_half_again():
    logits = torch.randn(2, 3, 50, dtype=torch.bfloat16, requires_grad=True)
    tokens = torch.randint(50, (2, 3))
    log_probs, entropy = chunked_log_probs(logits, tokens, 0.9, 4)
    assert (log_probs.dtype, entropy.dtype) == (torch.float32, torch.float32)
    torch.testing.assert_close(log_probs, token_log_probs(logits.float(), tokens, 0.9))
    log_probs.sum().backward()
    assert logits.grad.dtype == torch.bfloat16


def test_packed_tokens_without_a_batch_dimension():
    logits, tokens = torch.randn(7, 5), torch.randint(5, (7,))
    log_probs, _ = chunked_log_probs(logits, tokens, chunk_size=3)
    torch.testing.assert_close(log_probs, token_log_probs(logits, tokens))


def test_no_tokens_at_all():
    log_probs, entropy = chunked_log_probs(torch.zeros(2, 0, 5, requires_grad=True), torch.zeros(2, 0).long())
    assert log_probs.shape == entropy.shape == (2, 0)
    log_probs.sum().backward()


class _LargestFloat32(TorchDispatchMode):
    """Remembers the number of elements of the largest float32 tensor that any operation made, views aside."""

    def __init__(self, logits):
        super().__init__()
        self.given, self.largest = logits.untyped_storage().data_ptr(), 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float32:
                is_view = tensor.untyped_storage().data_ptr() == self.given
                self.largest = max(self.largest, 0 if is_view else tensor.numel())
        return out


@pytest.mark.parametrize("prompt_length", [1, 9])
def test_no_float32_table_is_larger_than_a_chunk_forward_or_backward(prompt_length):
    logits = torch.randn(4, 40, 100, dtype=torch.bfloat16, requires_grad=True)
    ids = torch.randint(100, (4, 40))
    with _LargestFloat32(logits) as seen:
        log_probs, entropy = chunked_log_probs(logits[:, prompt_length - 1 : 39], ids[:, prompt_length:], chunk_size=8)
        (log_probs.sum() + entropy.sum()).backward()
        chunked_sum_pi_squared(logits[:, prompt_length - 1 : 39], chunk_size=8)
    assert seen.largest == 8 * 100
    with _LargestFloat32(logits) as seen:
        token_log_probs(logits, ids)
    assert seen.largest == 4 * 40 * 100


def test_the_response_part_of_float32_logits_is_not_copied():
    logits = torch.randn(4, 40, 100)
    with _LargestFloat32(logits) as seen:
        chunked_log_probs(logits[:, 8:39], torch.randint(100, (4, 31)), chunk_size=8)
    assert seen.largest == 8 * 100


def test_response_log_probs_for_every_prompt_length():
    torch.manual_seed(0)
    logits, ids = torch.randn(3, 5, 7, dtype=torch.float64), torch.randint(7, (3, 5))
    table = logits.log_softmax(-1)
    for prompt_length in range(1, 6):
        log_probs, _ = response_log_probs(logits, ids, prompt_length)
        expected = [[table[b, t - 1, ids[b, t]].item() for t in range(prompt_length, 5)] for b in range(3)]
        assert log_probs.tolist() == [pytest.approx(row) for row in expected]


@pytest.mark.parametrize("prompt_length", [0, -1, 5])
def test_a_prompt_length_outside_the_row_is_refused(prompt_length):
    with pytest.raises(ShapeError, match=rf"\[1, 4\].*found {prompt_length}"):
        response_log_probs(LOGITS, IDS, prompt_length)


@pytest.mark.parametrize("temperature", [0.0, -1.0, NAN])
def test_a_temperature_that_is_not_positive_is_refused(temperature):
    for call in (
        lambda: token_log_probs(LOGITS, IDS, temperature),
        lambda: token_entropy(LOGITS, temperature),
        lambda: token_sum_pi_squared(LOGITS, temperature),
        lambda: chunked_sum_pi_squared(LOGITS, temperature),
        lambda: chunked_log_probs(LOGITS, IDS, temperature),
    ):
        with pytest.raises(ConfigError, match=r"rollout\.temperature"):
            call()


@pytest.mark.parametrize("function", [token_log_probs, chunked_log_probs])
@pytest.mark.parametrize("ids", [IDS[:, :3], IDS[0], IDS.unsqueeze(-1)])
def test_tokens_that_do_not_fit_the_logits_are_refused(function, ids):
    with pytest.raises(ShapeError, match=r"logits \(1, 4, 4\)"):
        function(LOGITS, ids)


def test_a_chunk_without_tokens_is_refused():
    with pytest.raises(ConfigError, match="chunk_size"):
        chunked_log_probs(LOGITS, IDS, chunk_size=0)
    with pytest.raises(ConfigError, match="chunk_size"):
        chunked_sum_pi_squared(LOGITS, chunk_size=0)
