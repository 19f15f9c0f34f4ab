"""How fast the phases of a worker compute: tokens, padding, and model FLOPs against what the device can do.

Model FLOPs are those that the mathematics needs, so recomputed activations and padding do not count::

    MFU = model FLOPs of the phase / (seconds x devices x dense bfloat16 peak of a device)

Moving a model on and off the device is not part of the seconds; waiting for other ranks is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from rl_core.contracts.engine import EngineWork
from rl_core.metrics import Metric

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_core.contracts.engine import TrainingEngine

LABELS: Final[Mapping[str, str]] = {
    "log_prob": "actor_infer",
    "ref_log_prob": "ref",
    "values": "critic_infer",
    "reward_model": "reward_model_infer",
    "reward_reference": "reward_reference",
    "update_reward_model": "reward_model",
    "update_critic": "critic",
    "update_actor": "actor",
    "update_sft": "sft",
    "compute_loss": "sft_infer",
}
"""Phases (``rl_core.workers.phases``) that compute with a training engine -> last part of their metrics' names."""


class PhaseClock:
    """Times the phases of one worker and asks its engines what they did in them."""

    def __init__(self, engines: Sequence[TrainingEngine], peak: float | None) -> None:
        """Store the arguments.

        Args:
            engines: all training engines of the worker.
            peak: FLOP/s of its device, see ``device_peak``; None reports no MFU.
        """
        self._engines = tuple(engines)
        self._peak = peak
        self._started = 0.0
        self._done: dict[str, tuple[EngineWork, float]] = {}

    def start(self) -> None:
        """A phase has what it needs on the device; what engines did before belongs to none."""
        for engine in self._engines:
            engine.take_work()
        self._started = time.perf_counter()

    def stop(self, phase: str) -> None:
        """``phase`` ends here."""
        seconds = time.perf_counter() - self._started
        for engine in self._engines:
            work = engine.take_work()
            # Ranks that share rows with another one would count them twice.
            if work is not None and work.computed_tokens and engine.dispatch_info().is_collect:
                before, spent = self._done.get(phase, (EngineWork(0, 0, 0.0), 0.0))
                self._done[phase] = before + work, spent + seconds

    def take(self) -> dict[str, Metric]:
        """Metrics of the phases since the last call; forgets them.

        Returns:
            For each phase that computed, with its name of ``LABELS``: ``perf/tokens_per_second/<name>`` (a sum over ranks of
            the rate of each), ``perf/padding/<name>`` (share of the computed tokens that were padding) and, where the
            device's peak is known, ``perf/mfu/<name>``.
        """
        done, self._done = self._done, {}
        metrics: dict[str, Metric] = {}
        for phase, (work, seconds) in done.items():
            name = LABELS[phase]
            metrics[f"perf/tokens_per_second/{name}"] = Metric(work.tokens / seconds, "sum")
            padding = 1.0 - work.tokens / work.computed_tokens
            metrics[f"perf/padding/{name}"] = Metric(padding, "mean", count=work.computed_tokens)
            if self._peak is not None and work.flops is not None:
                used = work.flops / (seconds * self._peak * self._devices())
                metrics[f"perf/mfu/{name}"] = Metric(used, "mean")
        return metrics

    def _devices(self) -> float:
        """Devices that compute the same rows together."""
        engine = self._engines[0]
        return engine.context.world_size / engine.dispatch_info().dp_size
