"""Training of a reward model: what a row is, what a step learns, what validation tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from rl_dataproto import lengths

from rl_core.contracts.mini_batch import PLAN_KEY
from rl_core.data.preferences import PreferenceDataset
from rl_core.trainer.offline.trainer import Counts, OfflineTrainer
from rl_core.trainer.rm.batch import pair_batch
from rl_core.workers.rm import RMWorker

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.metrics import Metric
    from rl_core.single_controller.base import Worker


class RMTrainer(OfflineTrainer):
    """Trains one reward model on preference pairs."""

    kind: ClassVar[str] = "rm"
    identity: ClassVar[Sequence[str]] = ("chosen_ids", "rejected_ids", "margin")
    worker_class: ClassVar[type[Worker]] = RMWorker

    def read(self, files: Any, tokenizer: Any, max_samples: int) -> PreferenceDataset:
        """See ``OfflineTrainer``."""
        return PreferenceDataset(files, self.config.data, tokenizer, max_samples=max_samples)

    def make_batch(self, items: Sequence[Mapping[str, Any]]) -> DataProto:
        """See ``OfflineTrainer``."""
        return pair_batch(items, self.config.data.max_length)

    def update(self, batch: DataProto) -> Mapping[str, Metric]:
        """See ``OfflineTrainer``."""
        report: Mapping[str, Metric] = self.worker_group.update_rm(batch)
        return report

    def judge(self, batch: DataProto) -> dict[str, float]:
        """Loss, accuracy and mean scores of the held-out pairs."""
        report: Mapping[str, Metric] = self.worker_group.judge_pairs(batch)
        values = {f"val/{name}": metric.value for name, metric in report.items()}
        return values | {"val/num_pairs": len(batch)}

    def count(self, batch: DataProto) -> Counts:
        """Pairs, tokens and lengths of the step."""
        totals = batch.meta_info[PLAN_KEY].batches[0].totals
        sizes = torch.cat([lengths(batch.batch[name]) for name in ("chosen_ids", "rejected_ids")]).double()
        metrics = {
            "train/num_pairs": len(batch),
            "train/num_tokens": totals.num_tokens,
            "sequence_length/mean": float(sizes.mean()),
            "sequence_length/max": float(sizes.max()),
        }
        return Counts(metrics, totals.num_tokens)
