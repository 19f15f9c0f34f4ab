"""What one step of the loop records: times, numbers, and the observers of plugins."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rl_core.metrics import Metric, merge_metrics, metric_values
from rl_core.single_controller.base.progress import progress
from rl_core.trainer.ppo.metrics import batch_metrics, effective_sample_size, num_tokens

if TYPE_CHECKING:
    from rl_dataproto import DataProto, DataProtoFuture

    from rl_core.plugins import Registry
    from rl_core.trainer.ppo.trainer import PPOTrainer

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
        """Wall time of a block, under ``timing_s/<name>``, added up; a failure inside names step and block."""
        started = time.perf_counter()
        try:
            with progress(step=self._step, phase=name):
                yield
        finally:
            spent = self._values.get(f"timing_s/{name}", 0.0)
            self._values[f"timing_s/{name}"] = spent + time.perf_counter() - started

    def start(self, name: str, method: Any, batch: DataProto) -> Stage:
        """Begin ``method(batch)`` of a worker group; its time goes under ``timing_s/<name>``, of the wait too."""
        with self.timer(name):
            return Stage(self, name, method.start(batch))

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
        """``close`` with the numbers that the controller computes from the batch."""
        self.add(batch_metrics(batch, max_response_length))
        self.add(effective_sample_size(self._values))
        return self.close(num_tokens(batch))

    def close(self, tokens: int) -> dict[str, float]:
        """All numbers of the step, of which ``tokens`` went through the model; observers get them too."""
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


class Stage:
    """A batch that workers compute while the loop goes on."""

    def __init__(self, log: StepLog, name: str, future: DataProtoFuture) -> None:
        """Made by ``StepLog.start``."""
        self._log = log
        self._name = name
        self._future = future

    def result(self) -> DataProto:
        """Wait for it."""
        with self._log.timer(self._name):
            result: DataProto = self._future.get()
            return result


def phase_metrics(trainer: PPOTrainer) -> dict[str, Metric]:
    """Memory and speed of each phase of the step in each role; see ``rl_core.workers.memory`` and ``throughput``."""
    groups: list[Any] = [trainer.actor_rollout_wg, trainer.ref_policy_wg, trainer.critic_wg, trainer.reward_model_wg]
    # The actor's worker may play the reference too.
    distinct = {id(group): group for group in groups if group is not None}.values()
    return merge_metrics([report for group in distinct for report in group.phase_metrics()])
