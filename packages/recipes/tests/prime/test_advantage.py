from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_core.algorithms.inputs import AdvantageInputs
from rl_core.errors import ConfigError, DataError, ShapeError
from rl_recipes.prime.advantage import prime

NAN = float("nan")


def config(gamma=1.0, **keys):
    defaults = {"reward_gt_coef": 1.0, "reward_dpo_coef": 1.0, "granularity": "token", "norm": "none", "whiten": False}
    return SimpleNamespace(gamma=gamma, prime=SimpleNamespace(**defaults | keys))


def inputs(process, outcomes, uid, *, masks=None, garbage=0.0):
    """Process rewards as lists; outcomes on the last True position."""
    width = max(map(len, process)) + 1
    masks = masks or [[True] * len(row) for row in process]
    mask = torch.tensor([row + [False] * (width - len(row)) for row in masks])
    scores = torch.tensor([row + [garbage] * (width - len(row)) for row in process], dtype=torch.float64)
    rewards = torch.where(mask, 0.0, torch.tensor(garbage, dtype=torch.float64))
    for row, outcome in enumerate(outcomes):
        if mask[row].any():
            rewards[row, mask[row].nonzero()[-1]] = outcome
    return AdvantageInputs(
        token_level_rewards=rewards,
        response_mask=mask,
        uid=np.array(list(uid), dtype=object),
        extras={"rm_scores": torch.where(mask, scores, garbage)},
    )


def rows(advantages, batch):
    assert advantages[~batch.response_mask].count_nonzero() == 0
    return [row[mask].tolist() for row, mask in zip(advantages, batch.response_mask, strict=True)]


PAIR = inputs([[0.1, 0.3], [-0.2, 0.0, 0.5]], [1.0, 0.0], "pp")


@pytest.mark.parametrize(
    ("keys", "first", "second"),
    [
        ({}, [1.2, 1.2], [-1.3, -0.9, -0.7]),
        ({"gamma": 0.5}, [1.1, 1.2], [-1.425, -1.05, -0.7]),
        ({"reward_gt_coef": 0.0}, [0.2, 0.2], [-0.3, 0.1, 0.3]),
        ({"reward_dpo_coef": 0.0}, [1.0, 1.0], [-1.0, -1.0, -1.0]),
        ({"reward_gt_coef": 5.0, "reward_dpo_coef": 10.0}, [7.0, 7.0], [-8.0, -4.0, -2.0]),
        ({"granularity": "whole"}, [1.1, 1.1], [-1.1, -1.1, -1.1]),
        # The largest sum to the end is 0.5 (second row), so all process rewards are doubled.
        ({"norm": "batch_norm"}, [1.4, 1.4], [-1.6, -0.8, -0.4]),
    ],
)
def test_hand_numbers(keys, first, second):
    advantages, returns = prime(PAIR, config(**keys))
    found = rows(advantages, PAIR)
    assert found[0] == pytest.approx(first, abs=1e-12)
    assert found[1] == pytest.approx(second, abs=1e-12)
    assert torch.equal(advantages, returns)
    assert advantages.data_ptr() != returns.data_ptr()


def test_whitened_advantages_and_the_returns_before():
    plain, _ = prime(PAIR, config())
    advantages, returns = prime(PAIR, config(whiten=True))
    values = torch.cat([row[mask] for row, mask in zip(advantages, PAIR.response_mask, strict=True)])
    assert torch.equal(returns, plain)
    assert float(values.mean()) == pytest.approx(0.0, abs=1e-7)
    assert float(values.std()) == pytest.approx(1.0, abs=1e-6)
    assert rows(advantages, PAIR)[0][0] > rows(advantages, PAIR)[1][0]


def test_observations_are_stepped_over_and_cost_no_discount():
    gap = inputs([[0.1, NAN, 0.3], [-0.2, 0.0, 0.5]], [1.0, 0.0], "pp", masks=[[True, False, True], [True] * 3])
    assert rows(prime(gap, config(gamma=0.5))[0], gap)[0] == pytest.approx([1.1, 1.2])


def test_a_row_alone_has_no_baseline():
    alone = inputs([[0.1, 0.3]], [1.0], "p")
    assert rows(prime(alone, config())[0], alone) == [pytest.approx([1.4, 1.3])]
    assert rows(prime(alone, config(granularity="whole"))[0], alone) == [pytest.approx([1.4, 1.4])]


@pytest.mark.parametrize("granularity", ["token", "whole"])
@pytest.mark.parametrize("norm", ["none", "batch_norm"])
def test_rows_without_reward_or_tokens_are_as_if_they_were_not_there(granularity, norm):
    keys = config(granularity=granularity, norm=norm, whiten=True)
    more = inputs(
        [[0.1, 0.3], [9.0, 9.0], [-0.2, 0.0, 0.5], [7.0]],
        [1.0, NAN, 0.0, 0.0],
        "pppp",
        masks=[[True] * 2, [True] * 2, [True] * 3, [False]],
    )
    wanted, found = rows(prime(PAIR, keys)[0], PAIR), rows(prime(more, keys)[0], more)
    assert [found[0], found[2]] == [pytest.approx(wanted[0]), pytest.approx(wanted[1])]
    assert found[1] == [0.0, 0.0]
    assert found[3] == []


def test_equal_outcomes_and_no_process_reward_are_exactly_zero():
    flat = inputs([[0.0], [0.0, 0.0], [0.0]], [0.1] * 3, "ppp")
    for keys in ({}, {"norm": "batch_norm"}, {"granularity": "whole"}, {"whiten": True}):
        assert prime(flat, config(**keys))[0].count_nonzero() == 0


def test_what_is_refused():
    without = AdvantageInputs(
        token_level_rewards=PAIR.token_level_rewards, response_mask=PAIR.response_mask, uid=PAIR.uid
    )
    with pytest.raises(DataError, match=r"needs a reward for each token.*reward_model\.type=prime"):
        prime(without, config())
    with pytest.raises(DataError, match="prime compares"):
        prime(AdvantageInputs(token_level_rewards=PAIR.token_level_rewards, response_mask=PAIR.response_mask), config())
    broken = inputs([[0.1, NAN], [0.1]], [1.0, 0.0], "pp")
    with pytest.raises(DataError, match=r"row 0 .*not finite"):
        prime(broken, config())
    narrow = AdvantageInputs(
        token_level_rewards=PAIR.token_level_rewards,
        response_mask=PAIR.response_mask,
        uid=PAIR.uid,
        extras={"rm_scores": torch.zeros(2, 1)},
    )
    with pytest.raises(ShapeError, match="rm_scores"):
        prime(narrow, config())
    with pytest.raises(ConfigError, match="gamma"):
        prime(PAIR, config(gamma=1.5))


def slow(process, outcomes, uid, gamma):
    """Equation 5 by loops."""
    found = []
    for i, row in enumerate(process):
        others = [j for j in range(len(process)) if uid[j] == uid[i] and j != i]
        mean = sum(sum(process[j]) / len(process[j]) for j in others) / len(others) if others else 0.0
        outcome = outcomes[i] - (sum(outcomes[j] for j in others) / len(others) if others else 0.0)
        found.append(
            [sum(gamma ** (s - t) * (row[s] - mean) for s in range(t, len(row))) + outcome for t in range(len(row))]
        )
    return found


REWARDS = st.lists(st.floats(-2, 2, width=32), min_size=1, max_size=4)
ROWS = st.lists(st.tuples(REWARDS, st.sampled_from([0.0, 0.25, 1.0]), st.sampled_from("ab")), min_size=1, max_size=6)


@settings(deadline=None, max_examples=60)
@given(ROWS, st.sampled_from([0.0, 0.5, 0.9, 1.0]), st.sampled_from([0.0, NAN, float("inf"), 1e30]))
def test_like_plain_python_whatever_stands_in_padding(data, gamma, garbage):
    process, outcomes, uid = (list(column) for column in zip(*data, strict=True))
    batch = inputs(process, outcomes, uid, garbage=garbage)
    for found, wanted in zip(
        rows(prime(batch, config(gamma))[0], batch), slow(process, outcomes, uid, gamma), strict=True
    ):
        assert found == pytest.approx(wanted, abs=1e-9)


@settings(deadline=None, max_examples=40)
@given(
    ROWS,
    st.randoms(use_true_random=False),
    st.sampled_from(["token", "whole"]),
    st.sampled_from(["none", "batch_norm"]),
)
def test_the_order_of_rows_changes_nothing(data, random, granularity, norm):
    keys = config(granularity=granularity, norm=norm, whiten=True)
    order = list(range(len(data)))
    random.shuffle(order)
    one, two = inputs(*zip(*data, strict=True)), inputs(*zip(*(data[i] for i in order), strict=True))
    before, after = rows(prime(one, keys)[0], one), rows(prime(two, keys)[0], two)
    for place, row in enumerate(order):
        assert after[place] == pytest.approx(before[row], abs=1e-9)


def test_float32_stays_float32():
    batch = AdvantageInputs(
        token_level_rewards=PAIR.token_level_rewards.float(),
        response_mask=PAIR.response_mask,
        uid=PAIR.uid,
        extras={"rm_scores": PAIR.extras["rm_scores"].float()},
    )
    assert [tensor.dtype for tensor in prime(batch, config(whiten=True))] == [torch.float32, torch.float32]
