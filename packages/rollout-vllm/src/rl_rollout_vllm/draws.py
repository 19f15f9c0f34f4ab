"""Makes vLLM's draws depend on (seed, position in the sequence) alone. Runs in vLLM's workers.

vLLM's V2 model runner derives the noise of a token from the request's seed and the token's position, as it should be, so
nothing is changed there. The V1 runner (CPU, and models that V2 does not have yet) gives each seeded request a generator
and takes the next number from it: a response that was cut and is continued by a new request would start from the first
number again. Here such a generator is seeded anew before each draw, with a mixture of seed and position.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Literal

import torch

SEED_KEY: Final = "rl_seed"
"""Where a request of the V1 runner carries its seed (``SamplingParams.extra_args``).

vLLM's own ``seed`` would give it a generator that vLLM rewinds after each piece of a long prompt, which generators of a CPU
cannot do.
"""

DrawMode = Literal["position", "hooked"]
"""``position``: the runner derives draws from (seed, position). ``hooked``: ``install`` makes it so."""

_MASK: Final = (1 << 64) - 1


def mix(seed: int, position: int) -> int:
    """64 well-mixed bits of both, of which generators may use a part.

    Source: Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators" (SplitMix64).
    """
    return _finish((_finish(seed & _MASK) + position * 0x9E3779B97F4A7C15) & _MASK)


def _finish(state: int) -> int:
    state = (state + 0x9E3779B97F4A7C15) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


def install(runner: Any) -> DrawMode:
    """Make the runner's draws depend on (seed, position); a second call changes nothing."""
    if any(base.__module__ == "vllm.v1.worker.gpu.model_runner" for base in type(runner).__mro__):
        return "position"
    sampler = getattr(runner, "sampler", None)
    # Only the last of several pipeline stages samples.
    if sampler is not None and not isinstance(sampler.forward, _KeyedForward):
        sampler.forward = _KeyedForward(runner, sampler.forward)
    return "hooked"


class _KeyedForward:
    """``Sampler.forward`` of the V1 runner, with a freshly seeded generator for each row that carries a seed."""

    def __init__(self, runner: Any, forward: Callable[..., Any]) -> None:
        self._runner = runner
        self._forward = forward
        self._generators: list[torch.Generator] = []

    def __call__(self, logits: torch.Tensor, sampling_metadata: Any, *args: Any, **kwargs: Any) -> Any:
        seeded = self._seeded()
        if seeded:
            generators = {**sampling_metadata.generators, **seeded}
            sampling_metadata = replace(sampling_metadata, generators=generators)
        return self._forward(logits, sampling_metadata, *args, **kwargs)

    def _seeded(self) -> dict[int, torch.Generator]:
        requests, found = self._runner.requests, {}
        for row, name in enumerate(self._runner.input_batch.req_ids):
            state = requests.get(name)
            extra = None if state is None or state.sampling_params is None else state.sampling_params.extra_args
            if extra and SEED_KEY in extra:
                generator = self._generator(row)
                # What is in the sequence so far, drawn tokens that are not known here yet included.
                generator.manual_seed(mix(extra[SEED_KEY], state.num_tokens) >> 1)
                found[row] = generator
        return found

    def _generator(self, row: int) -> torch.Generator:
        while row >= len(self._generators):
            self._generators.append(torch.Generator(device=self._runner.device))
        return self._generators[row]
