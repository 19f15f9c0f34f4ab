from __future__ import annotations

import pytest
from rl_core.contracts.rollout import RolloutState
from rl_core.errors import RlError
from rl_rollout_vllm.memory import require_freed

GIB = 2**30
BOTH = (RolloutState.WEIGHTS, RolloutState.KV_CACHE)


def report(free_gib, allocated_gib=0, reserved_gib=0):
    sizes = {"weights": 2, "kv_cache": 6, "free": free_gib, "total": 80}
    return {name: size * GIB for name, size in {**sizes, "allocated": allocated_gib, "reserved": reserved_gib}.items()}


def freed(before, after, states=BOTH, min_share=0.9):
    return require_freed(before, after, states, level=2, min_share=min_share)


def test_what_all_workers_gave_back():
    assert freed([report(10), report(20)], [report(18), report(27.5)]) == 15.5 * GIB


def test_only_what_was_there_is_due():
    assert freed([report(10)], [report(12)], states=(RolloutState.WEIGHTS,)) == 2 * GIB


def test_too_little_is_an_error_that_names_what_holds_it():
    with pytest.raises(
        RlError,
        match=r"worker 1 .* gave 3.00 GiB back .*level 2.*weights 2.00 GiB, kv_cache 6.00 GiB.*"
        r"1.00 GiB in tensors.*0.50 GiB that its allocator keeps.*55.50 GiB by contexts",
    ):
        freed([report(10), report(20)], [report(18), report(23, allocated_gib=1, reserved_gib=1.5)])


def test_the_demand_can_be_set():
    assert freed([report(10)], [report(13)], min_share=0.3) == 3 * GIB


def test_a_cpu_has_nothing_to_give_back():
    assert freed([{"weights": 5, "kv_cache": 5}], [{"weights": 5, "kv_cache": 5}]) == 0
