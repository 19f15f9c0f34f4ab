"""What one step of the loop records: times, numbers, and the observers of plugins."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rl_core.metrics import Metric, metric_values
from rl_core.single_controller.base.progress import progress
from rl_core.trainer.ppo.metrics import batch_metrics, num_tokens

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.plugins import Registry

METRICS_KEY = "metrics"
"""``meta_info`` key under which a stage hands its metrics to the loop."""


class StepLog:
    """Collects the numbers of one step."""

    def __init__(self, step: int, registry: Registry) -> None:
        """Tell observers that ``step`` begins."""
        self._step = step
        self._registry = registry
        self._values: dict[str, float] = {}
        registry.hook.rl_step_started(step=step)

    @contextmanager
    def timer(self, name: str) -> Iterator[None]:
        """Wall time of a block, under ``timing_s/<name>``; a failure inside names step and block."""
        started = time.perf_counter()
        try:
            with progress(step=self._step, phase=name):
                yield
        finally:
            self._values[f"timing_s/{name}"] = time.perf_counter() - started

    def add(self, values: Mapping[str, float]) -> None:
        """Record plain numbers."""
        self._values.update(values)

    def merge(self, metrics: Mapping[str, Metric]) -> None:
        """Record combined metrics of workers."""
        self._values.update(metric_values(metrics))

    def take(self, batch: DataProto) -> None:
        """Record what the sampler left in the batch's meta data, and remove it from there."""
        self.merge(batch.meta_info.pop(METRICS_KEY, {}))

    def finish(self, batch: DataProto, max_response_length: int) -> dict[str, float]:
        """All numbers of the step; observers get them too."""
        tokens = num_tokens(batch)
        self.add(batch_metrics(batch, max_response_length))
        self.add(
            {
                "training/global_step": self._step,
                "perf/total_num_tokens": tokens,
                "perf/time_per_step": self._values["timing_s/step"],
                "perf/throughput": tokens / self._values["timing_s/step"],
            }
        )
        self._registry.hook.rl_step_finished(step=self._step, metrics=dict(self._values))
        return dict(self._values)
