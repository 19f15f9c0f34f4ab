import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rl_core.algorithms.returns import returns_to_go
from rl_core.errors import ConfigError, ShapeError

NAN = float("nan")


def test_b23_observations_are_stepped_over():
    rewards = torch.tensor([[0.0, 0.5, NAN, 7.0, 0.0, 1.0, NAN]])
    mask = torch.tensor([[1, 1, 0, 0, 1, 1, 0]]).bool()
    assert returns_to_go(rewards, mask).tolist() == [[1.5, 1.5, 0.0, 0.0, 1.0, 1.0, 0.0]]
    # and cost no discount
    assert returns_to_go(rewards, mask, 0.5).tolist() == [[0.375, 0.75, 0.0, 0.0, 0.5, 1.0, 0.0]]


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 1.0, -0.5]), st.booleans()), max_size=7), st.sampled_from([0.0, 0.5, 1.0])
)
def test_like_plain_python(tokens, gamma):
    kept = [reward for reward, emitted in tokens if emitted]
    expected = [sum(gamma**k * reward for k, reward in enumerate(kept[t:])) for t in range(len(kept))]
    rewards = torch.tensor([[reward for reward, _ in tokens]], dtype=torch.float64).reshape(1, -1)
    mask = torch.tensor([[emitted for _, emitted in tokens]], dtype=torch.bool).reshape(1, -1)
    found = returns_to_go(rewards, mask, gamma)
    assert found[mask].tolist() == pytest.approx(expected)
    assert found[~mask].count_nonzero() == 0


def test_what_is_refused():
    with pytest.raises(ConfigError, match=r"algorithm\.gamma .* found -0.1"):
        returns_to_go(torch.zeros(1, 1), torch.ones(1, 1).bool(), -0.1)
    with pytest.raises(ShapeError):
        returns_to_go(torch.zeros(1, 2), torch.ones(1, 1).bool())
