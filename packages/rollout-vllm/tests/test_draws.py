from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch
from rl_rollout_vllm.draws import SEED_KEY, install, mix


def test_seeds_and_positions_are_mixed_well():
    numbers = [mix(seed, position) for seed in range(50) for position in range(50)]
    assert len({number & 0xFFFFFFFF for number in numbers}) == len(numbers)
    assert all(0 <= number < 2**64 for number in numbers)
    # (seed, position) and (position, seed) are different places, and a seed's high bits count.
    assert mix(1, 2) != mix(2, 1)
    assert len({mix(5 + shift, 1) & 0xFFFFFFFF for shift in (0, 2**32, 2**40, 2**62)}) == 4


def test_the_mixture_is_split_mix():
    # The second number of SplitMix64 that starts at 0, as its authors' code prints it.
    from rl_rollout_vllm.draws import _finish

    assert _finish(0) == 0xE220A8397B1DCDAF
    assert _finish(0x9E3779B97F4A7C15) == 0x6E789E6AA1B965F4


@dataclass
class Metadata:
    generators: dict = field(default_factory=dict)


class Runner:
    """What is used of vLLM's V1 runner; its sampler draws one number for each row that has a generator."""

    device = torch.device("cpu")

    def __init__(self):
        self.requests = {}
        self.input_batch = SimpleNamespace(req_ids=[])
        self.sampler = SimpleNamespace(forward=self.draw)

    def draw(self, logits, metadata):
        return {row: float(torch.rand(1, generator=generator)) for row, generator in metadata.generators.items()}

    def add(self, name, seed, num_tokens):
        params = SimpleNamespace(extra_args=None if seed is None else {SEED_KEY: seed})
        self.requests[name] = SimpleNamespace(sampling_params=params, num_tokens=num_tokens)
        self.input_batch.req_ids.append(name)


@pytest.fixture
def runner():
    made = Runner()
    assert install(made) == "hooked"
    return made


def test_a_draw_depends_on_seed_and_position_alone(runner):
    runner.add("a", 7, 10)
    first = runner.sampler.forward(None, Metadata())[0]
    runner.requests["a"].num_tokens = 11
    second = runner.sampler.forward(None, Metadata())[0]
    assert first != second
    runner.input_batch.req_ids.clear()
    runner.add("other", 9, 4)
    runner.add("continued", 7, 11)
    assert runner.sampler.forward(None, Metadata())[1] == second


def test_requests_without_our_seed_keep_vllms_generators(runner):
    runner.add("theirs", None, 3)
    generator = torch.Generator().manual_seed(4)
    expected = float(torch.rand(1, generator=torch.Generator().manual_seed(4)))
    assert runner.sampler.forward(None, Metadata({0: generator})) == {0: expected}


def test_installing_twice_changes_nothing(runner):
    before = runner.sampler.forward
    install(runner)
    assert runner.sampler.forward is before


def test_a_runner_that_draws_by_position_is_left_alone():
    kind = type("GPUModelRunner", (), {"__module__": "vllm.v1.worker.gpu.model_runner"})
    made = type("CPUModelRunner", (kind,), {})()
    assert install(made) == "position"
    assert not hasattr(made, "sampler")


def test_a_pipeline_stage_without_a_sampler_has_nothing_to_install():
    assert install(SimpleNamespace()) == "hooked"
