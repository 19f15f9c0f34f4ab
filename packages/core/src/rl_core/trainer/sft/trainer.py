"""Supervised fine-tuning: what a row is, what a step learns, what validation tells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rl_dataproto import lengths

from rl_core.contracts.mini_batch import PLAN_KEY
from rl_core.data.chat import ChatDataset
from rl_core.trainer.offline.trainer import Counts, OfflineTrainer
from rl_core.trainer.sft.batch import sft_batch
from rl_core.workers.sft import NLL, TOKENS, SFTWorker

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.metrics import Metric
    from rl_core.single_controller.base import Worker


class SFTTrainer(OfflineTrainer):
    """Fine-tunes one model on conversations."""

    kind: ClassVar[str] = "sft"
    identity: ClassVar[Sequence[str]] = ("input_ids", "response_mask")
    worker_class: ClassVar[type[Worker]] = SFTWorker

    def read(self, files: Any, tokenizer: Any, max_samples: int) -> ChatDataset:
        """See ``OfflineTrainer``."""
        return ChatDataset(files, self.config.data, tokenizer, max_samples=max_samples)

    def make_batch(self, items: Sequence[Mapping[str, Any]]) -> DataProto:
        """See ``OfflineTrainer``."""
        return sft_batch(items, self.config.data.max_length)

    def update(self, batch: DataProto) -> Mapping[str, Metric]:
        """See ``OfflineTrainer``."""
        report: Mapping[str, Metric] = self.worker_group.update_sft(batch)
        return report

    def judge(self, batch: DataProto) -> dict[str, float]:
        """Mean negative log-likelihood of the validation rows' learned tokens, in nats, and its exponential."""
        sums = self.worker_group.compute_loss(batch)
        loss = sums[NLL].value / sums[TOKENS].value
        # A loss this large is told apart from infinity by nobody, and exp would raise.
        perplexity = math.exp(loss) if loss < 700 else math.inf
        return {"val/loss": loss, "val/perplexity": perplexity, "val/num_tokens": sums[TOKENS].value}

    def count(self, batch: DataProto) -> Counts:
        """Conversations, learned tokens and lengths of the step."""
        totals = batch.meta_info[PLAN_KEY].batches[0].totals
        sizes = lengths(batch.batch["input_ids"]).double()
        metrics = {
            "train/num_sequences": totals.num_sequences,
            "train/num_tokens": totals.num_tokens,
            "sequence_length/mean": float(sizes.mean()),
            "sequence_length/max": float(sizes.max()),
        }
        return Counts(metrics, int(sizes.sum()))
