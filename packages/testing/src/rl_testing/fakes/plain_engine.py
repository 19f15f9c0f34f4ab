"""Data-parallel fake: every rank holds the whole model and computes its own rows."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from rl_core.contracts.engine import LossFunction
from rl_core.metrics import Metric
from rl_core.single_controller.base.collective import DispatchInfo
from torch import Tensor

from rl_testing.fakes import tiny_model
from rl_testing.fakes.engine_base import EngineBase
from rl_testing.fakes.micro_batch import MicroBatch
from rl_testing.fakes.parts import Part, Parts


class PlainEngine(EngineBase):
    """Whole model on every rank; gradients are added up in rank order, so all ranks stay equal to the bit."""

    def dispatch_info(self) -> DispatchInfo:
        """Every rank has its own rows and answers."""
        return DispatchInfo(dp_rank=self.context.rank, dp_size=self.context.world_size, is_collect=True)

    def place(self, name: str, rank: int) -> Part | None:
        """See ``EngineBase``; a tied head is the embedding itself, not a part of its own."""
        tiny = self._require_initialized("place")
        if name == tiny_model.HEAD and tiny.tie_word_embeddings:
            return None
        rows = tiny_model.shapes(tiny, value_head=self.has_score_head)[name][0]
        return Part(name, 0, rows, sends=rank == 0)

    def random_stream(self) -> int:
        """One for each rank."""
        return self.context.rank

    def compute(self, micro: MicroBatch, wanted: frozenset[str]) -> dict[str, Tensor]:
        """See ``EngineBase``."""
        outputs = self._outputs(self.parameters("forward"), micro)
        return {name: outputs[name] for name in wanted}

    def compute_and_accumulate(self, micro: MicroBatch, loss_fn: LossFunction) -> dict[str, Metric] | None:
        """See ``EngineBase``."""
        leaves = self.leaves()
        outputs = self._outputs(leaves, micro)
        if micro.is_empty:
            return None
        loss, metrics = self.loss(micro, outputs, loss_fn)
        if loss.requires_grad:
            self.accumulate(list(leaves), torch.autograd.grad(loss, list(leaves.values()), allow_unused=True))
        return metrics

    def _outputs(self, parts: Mapping[str, Tensor], micro: MicroBatch) -> dict[str, Tensor]:
        num_layers = self._require_initialized("forward").num_layers
        hidden = self.layers(parts, range(num_layers), parts[tiny_model.EMBED][micro.ids])
        return self.token_outputs(parts, hidden, micro)

    def score_tokens(self, parts: Mapping[str, Tensor], states: Tensor, tokens: Tensor) -> dict[str, Tensor]:
        """See ``EngineBase``."""
        head = parts.get(tiny_model.HEAD, parts[tiny_model.EMBED])
        table = torch.log_softmax(states @ head.T / self.config.temperature, dim=-1)
        return {
            "log_probs": table.gather(-1, tokens[:, None]).squeeze(-1),
            "entropy": -(table.exp() * table).sum(-1),
            "sum_pi_squared": table.detach().exp().square().sum(-1),
        }

    def reduce_gradients(self, gradients: Parts) -> Parts:
        """See ``EngineBase``."""
        reports = self.context.collective.all_gather_object(gradients)
        return {name: torch.stack([report[name] for report in reports]).sum(0) for name in gradients}
