from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from rl_rollout_hf.draws import Uniforms


def test_numbers_are_those_of_the_generator():
    # Philox gives four numbers a counter, and counts up before the first.
    stream = np.random.Generator(np.random.Philox(key=7)).random(600)
    uniforms = Uniforms(7)
    assert [uniforms[position] for position in range(600)] == stream.tolist()


@settings(deadline=None)
@given(st.integers(0, 2**63 - 1), st.lists(st.integers(0, 5000), min_size=2, max_size=8))
def test_a_number_depends_on_seed_and_position_alone(seed, positions):
    there, back, fresh = Uniforms(seed), Uniforms(seed), [Uniforms(seed)[position] for position in positions]
    assert [there[position] for position in positions] == fresh
    assert [back[position] for position in reversed(positions)] == fresh[::-1]


def test_seeds_use_all_their_bits():
    seeds = [5, 5 + 2**32, 5 + 2**62, -5]
    assert len({Uniforms(seed)[0] for seed in seeds}) == len(seeds)


def test_numbers_are_spread_evenly():
    numbers = np.array([Uniforms(seed)[seed % 700] for seed in range(4000)])
    counts, _ = np.histogram(numbers, bins=10, range=(0, 1))
    assert counts.min() > 330  # 400 expected, standard deviation 19
    assert 0 <= numbers.min() < numbers.max() < 1
