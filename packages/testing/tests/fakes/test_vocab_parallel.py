from __future__ import annotations

import threading

import pytest
import torch
from rl_core.runtime.local_collective import CollectiveHub
from rl_testing.fakes.vocab_parallel import CopyToGroup, ScoreTokens, all_sum


def on_ranks(world_size, work):
    """``work(rank, collective)`` in one thread each; results in rank order."""
    hub = CollectiveHub("test", deadline_s=10.0)
    results = [None] * world_size

    def run(rank):
        results[rank] = work(rank, hub.world(rank, world_size))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def dense(logits, tokens):
    table = torch.log_softmax(logits, dim=-1)
    return table.gather(-1, tokens[:, None]).squeeze(-1), -(table.exp() * table).sum(-1), table.exp().square().sum(-1)


@pytest.mark.parametrize("borders", [(0, 11), (0, 4, 11), (0, 1, 10, 11)])
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_values_and_gradients_are_those_of_the_whole_vocabulary(borders, scale):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 11, generator=generator, dtype=torch.float64) * scale
    tokens = torch.tensor([0, 3, 4, 9, 10, 10])
    weights = torch.randn(2, 6, generator=generator, dtype=torch.float64)
    whole = logits.clone().requires_grad_()
    expected = dense(whole, tokens)
    (expected_grad,) = torch.autograd.grad((weights[0] * expected[0] + weights[1] * expected[1]).sum(), whole)

    def work(rank, collective):
        first, last = borders[rank], borders[rank + 1]
        shard = logits[:, first:last].clone().requires_grad_()
        log_probs, entropy, squares = ScoreTokens.apply(shard, tokens, first, collective)
        (grad,) = torch.autograd.grad((weights[0] * log_probs + weights[1] * entropy).sum(), shard)
        return log_probs.detach(), entropy.detach(), squares, grad

    found = on_ranks(len(borders) - 1, work)

    for log_probs, entropy, squares, _ in found:
        torch.testing.assert_close(log_probs, expected[0].detach(), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(entropy, expected[1].detach(), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(squares, expected[2].detach(), rtol=1e-12, atol=1e-12)
        assert not squares.requires_grad
        assert torch.equal(log_probs, found[0][0])
    torch.testing.assert_close(torch.cat([grad for *_, grad in found], dim=1), expected_grad, rtol=1e-12, atol=1e-12)


def test_a_copy_adds_up_the_gradients_of_all_ranks():
    def work(rank, collective):
        x = torch.ones(2, requires_grad=True)
        (grad,) = torch.autograd.grad((CopyToGroup.apply(x, collective) * (rank + 1)).sum(), x)
        return grad.tolist()

    assert on_ranks(3, work) == [[6.0, 6.0]] * 3


def test_sums_have_the_same_bits_everywhere():
    parts = torch.randn(4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    first, *others = on_ranks(4, lambda rank, collective: all_sum(parts[rank], collective))

    torch.testing.assert_close(first, parts.sum(0))
    assert all(torch.equal(first, other) for other in others)
