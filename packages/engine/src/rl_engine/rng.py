"""A random stream of an engine's own.

torch draws from one generator per device. An engine that used it as it finds it would depend on everything else in the
process: another role's engine, a sampler, a test that ran before. So each engine swaps its own state in while it trains,
and that state goes into its checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class RandomStream:
    """The random state that one engine draws from, on the CPU and on its device."""

    def __init__(self, device: torch.device | str) -> None:
        """An unseeded stream for work on ``device``."""
        self._device = torch.device(device)
        self._states: dict[str, Tensor] = {}
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Start anew."""
        self._states = {"cpu": torch.Generator().manual_seed(seed).get_state()}
        if self._device.type == "cuda":
            self._states["device"] = torch.Generator(self._device).manual_seed(seed).get_state()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Torch's generators are this stream's inside; outside they are what they were."""
        cuda = self._device.type == "cuda"
        outside = torch.get_rng_state()
        outside_cuda = torch.cuda.get_rng_state(self._device) if cuda else None
        torch.set_rng_state(self._states["cpu"])
        if cuda:
            torch.cuda.set_rng_state(self._states["device"], self._device)
        try:
            yield
        finally:
            self._states["cpu"] = torch.get_rng_state()
            torch.set_rng_state(outside)
            if outside_cuda is not None:
                self._states["device"] = torch.cuda.get_rng_state(self._device)
                torch.cuda.set_rng_state(outside_cuda, self._device)

    def state_dict(self) -> dict[str, Tensor]:
        """uint8 states by place."""
        return dict(self._states)

    def load_state_dict(self, states: dict[str, Tensor]) -> None:
        """Go on where ``states`` was taken; a place that it does not have stays as it is."""
        self._states |= {place: state.cpu() for place, state in states.items() if place in self._states}


def stream_seed(seed: int, rank: int, step: int) -> int:
    """Seed of one rank's stream at one trainer step: distinct for distinct arguments of any practical size."""
    return ((seed * 1_000_003 + rank) * 1_000_003 + step) % 2**63
