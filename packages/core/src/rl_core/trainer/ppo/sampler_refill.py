"""The synchronous sampler that gives a step fresh prompts for those of which no response came."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rl_dataproto import DataProto

from rl_core.contracts.sampler import GroupStatus
from rl_core.metrics import Metric, merge_metrics
from rl_core.trainer.ppo.sampler import IN_FLIGHT_KEY, SyncSampler, training_prompts
from rl_core.trainer.ppo.sampler_failures import failure_metrics
from rl_core.trainer.ppo.sampler_flight import Flight, InFlight, rows_of
from rl_core.trainer.ppo.step import METRICS_KEY

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig
    from rl_core.data.loader import PromptLoader


class RefillingSampler(SyncSampler):
    """``SyncSampler`` with ``trainer.v1.sampler.sync_refill_failed_groups``.

    A prompt of which every response failed is replaced by the next prompt of the data, in a generation of its own, until
    the batch is full or has got as many fresh prompts as it has places. The prompts of a draw that a step does not need wait
    for the next one. Prompts that failed stay failed: they count for ``trainer.max_failed_rollout_fraction``, whose total
    includes the fresh ones.
    """

    def __init__(
        self, config: PPOTrainerConfig, loader: PromptLoader, generate: Callable[[DataProto], DataProto]
    ) -> None:
        """See ``SyncSampler``."""
        super().__init__(config, loader, generate)
        self._waiting = Flight()

    def next(self) -> DataProto:
        """See ``Sampler``.

        Raises:
            StopIteration: what is left of the data does not fill a batch.
        """
        size = self._loader.batch_size
        self._draw(size)
        if len(self._waiting.entries) < size:
            raise StopIteration
        self.groups = []
        batches, reports = [], []
        chosen, num_fresh = self._taken(size), 0
        while chosen:
            batch, metrics = self._answered(rows_of(chosen, settled=False)[0])
            batches += [batch] if len(batch) else []
            reports.append(metrics)
            failed = sum(group.status is GroupStatus.FAILED for group in self.groups[-len(chosen) :])
            wanted = min(failed, size - num_fresh)
            self._draw(wanted)
            chosen = self._taken(wanted)
            num_fresh += len(chosen)
        joined = batches[0] if len(batches) == 1 else DataProto.concat(batches)
        joined.meta_info[METRICS_KEY] = (
            merge_metrics(reports)
            | failure_metrics(self.groups)
            | {"rollout/refilled_groups": Metric(num_fresh, "sum")}
        )
        return joined

    def state_dict(self) -> dict[str, Any]:
        """See ``Stateful``."""
        return super().state_dict() | {IN_FLIGHT_KEY: self._waiting.state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See ``Stateful``; goes on with the prompts that any schedule had in flight."""
        super().load_state_dict({key: value for key, value in state.items() if key != IN_FLIGHT_KEY})
        self._waiting = Flight.restored(state.get(IN_FLIGHT_KEY, []), self._prompts)

    def _prompts(self, draw: int) -> DataProto:
        return training_prompts(self._config, self._loader.batch(draw), draw)

    def _draw(self, count: int) -> None:
        """Let at least ``count`` prompts wait, if the data has them."""
        while len(self._waiting.entries) < count:
            try:
                items = self._loader.next()
            except StopIteration:
                return
            self._waiting.add(self._step, training_prompts(self._config, items, self._step))
            self._step += 1

    def _taken(self, count: int) -> list[InFlight]:
        chosen = self._waiting.entries[:count]
        self._waiting.remove(chosen)
        return chosen
