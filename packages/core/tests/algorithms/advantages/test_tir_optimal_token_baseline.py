import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.algorithms.advantages.optimal_token_baseline import optimal_token_baseline
from rl_core.algorithms.advantages.tir_optimal_token_baseline import tir_optimal_token_baseline
from rl_core.algorithms.inputs import AdvantageInputs

NAN = float("nan")


def _inputs(rewards, mask, uid, energy, **extras):
    """Columns that give each token the energy ``energy``: probability one half, so w = sum of squares."""
    squares = torch.tensor(energy, dtype=torch.float64)
    extras = {"old_log_probs": torch.full_like(squares, 0.5).log(), "sum_pi_squared": squares, **extras}
    return AdvantageInputs(
        token_level_rewards=torch.tensor(rewards, dtype=torch.float64),
        response_mask=torch.tensor(mask).bool(),
        uid=np.array(uid, dtype=object),
        extras=extras,
    )


def test_tokens_are_lined_up_without_the_observations():
    gap = _inputs(
        [[0.0, 7.0, 7.0, 1.0], [0.0, 0.0, 0.0, 0.0]], [[1, 0, 0, 1], [1, 1, 0, 0]], ["a", "a"], [[0.5] * 4] * 2
    )
    advantages, returns = tir_optimal_token_baseline(gap, None)
    assert returns.tolist() == [[1.0, 0.0, 0.0, 1.0], [0.0] * 4]
    assert advantages.tolist() == [[0.5, 0.0, 0.0, 0.5], [-0.5, -0.5, 0.0, 0.0]]
    # By position the last token has nobody to be compared with.
    assert optimal_token_baseline(gap, None)[0].tolist() == [[0.5, 0.0, 0.0, 1.0], [-0.5, 0.0, 0.0, 0.0]]


def test_garbage_in_observations_reaches_nothing():
    inputs = _inputs(
        [[0.0, NAN, 1.0], [0.0, 0.0, 0.0]], [[1, 0, 1], [1, 1, 0]], ["a", "a"], [[0.5, NAN, 0.5], [0.5] * 3]
    )
    assert tir_optimal_token_baseline(inputs, None)[0].tolist() == [[0.5, 0.0, 0.5], [-0.5, -0.5, 0.0]]


def test_a_missing_reward_or_masked_row_leaves_its_group():
    mask = [[1, 1], [1, 1], [0, 0], [1, 1]]
    inputs = _inputs([[0.0, 1.0], [NAN, 0.0], [0.0, 0.0], [0.0, 0.0]], mask, list("aaaa"), [[0.5] * 2] * 4)
    assert tir_optimal_token_baseline(inputs, None)[0].tolist() == [[0.5] * 2, [0.0] * 2, [0.0] * 2, [-0.5] * 2]


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.lists(st.sampled_from([0.0, 0.5, -1.0]), min_size=1, max_size=3)),
        min_size=1,
    ),
    st.data(),
)
def test_where_gaps_stand_does_not_matter(data, draw):
    uid = [name for name, _ in data]
    dense = [[*rewards, *[0.0] * (3 - len(rewards))] for _, rewards in data]
    dense_mask = [[1] * len(rewards) + [0] * (3 - len(rewards)) for _, rewards in data]
    packed, _ = tir_optimal_token_baseline(_inputs(dense, dense_mask, uid, [[0.5] * 3] * len(data)), None)
    plain, _ = optimal_token_baseline(_inputs(dense, dense_mask, uid, [[0.5] * 3] * len(data)), None)
    assert torch.equal(packed, plain)

    spread, mask = [], []
    for _, rewards in data:
        places = sorted(draw.draw(st.permutations(range(6)))[: len(rewards)])
        spread.append([rewards[places.index(t)] if t in places else NAN for t in range(6)])
        mask.append([int(t in places) for t in range(6)])
    gapped = _inputs(spread, mask, uid, [[0.5] * 6] * len(data))
    advantages, _ = tir_optimal_token_baseline(gapped, None)
    assert torch.equal(advantages[gapped.response_mask], packed[torch.tensor(dense_mask).bool()])
