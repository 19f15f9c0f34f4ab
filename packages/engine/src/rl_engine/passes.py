"""Passes over a batch: cut into micro-batches, packed, through the model, to columns or to gradients."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import torch
from rl_core.contracts.engine import EngineRole, EngineState, EngineWork, LossFunction, TokenOutputs
from rl_core.errors import ConfigError, ShapeError
from rl_core.metrics import Metric, merge_metrics
from rl_dataproto import DataProto
from torch import Tensor

from rl_engine.backend_hooks import BackendHooks
from rl_engine.images import COLUMN
from rl_engine.micro_batches import MicroBatch, micro_batches, require_columns, rows_in_order
from rl_engine.token_model import TokenModel


class PassesEngine(BackendHooks):
    """The passes of an engine, the same for every backend."""

    def forward(self, batch: DataProto, outputs: Collection[str]) -> DataProto | None:
        """See ``TrainingEngine``."""
        module = self.module("forward")
        self.states.require("forward", EngineState.PARAMETERS)
        wanted = self._known_outputs(module, outputs)
        found: dict[str, list[tuple[MicroBatch, Tensor]]] = {name: [] for name in wanted}
        module.eval()
        with torch.no_grad(), self.computing():
            size, budget = self.config.forward_micro_batch_size, self.config.forward_max_tokens
            require_columns(batch, "input_ids", "responses")
            images = [name for name in (COLUMN,) if name in batch.non_tensor_batch]
            read = batch.select(batch_keys=["input_ids", "responses"], non_tensor_batch_keys=images)
            for micro in self._micro_batches(read, size, budget):
                self.work.add(micro, with_gradient=False)
                for name, per_token in module(micro.inputs, wanted).items():
                    found[name].append((micro, per_token))
        self.after_forward()
        if not self.dispatch_info().is_collect:
            return None
        columns = {name: rows_in_order(found[name], len(batch), self._output_dtype) for name in sorted(wanted)}
        return DataProto.from_dict(tensors=columns)

    def forward_backward(self, batch: DataProto, loss_fn: LossFunction) -> Mapping[str, Metric] | None:
        """See ``TrainingEngine``."""
        module = self.module("forward_backward")
        self.states.require("forward_backward", EngineState.PARAMETERS, EngineState.GRADIENTS)
        wanted = self._known_outputs(module, loss_fn.outputs)
        require_columns(batch, "response_mask")
        reports: list[Mapping[str, Metric]] = [{"loss": Metric(0.0, "sum", keep_nan=True, count=0)}]
        module.train()
        with self.random.active(), self.computing():
            for micro in self._micro_batches(batch, self.config.micro_batch_size, self.config.max_tokens):
                self.work.add(micro, with_gradient=True)
                self.before_backward(is_last=micro.is_last)
                outputs = self.compute(micro.inputs, wanted)
                # Without rows, or with a loss that depends on none, there still is a backward pass in which ranks meet.
                share = torch.stack([values[:0].sum() for values in outputs.values()]).sum()
                if not micro.is_empty:
                    loss, metrics = self._loss(micro, outputs, loss_fn)
                    share = share + loss
                    reports.append(metrics)
                self.backward(share)
        return merge_metrics(reports) if self.dispatch_info().is_collect else None

    def _micro_batches(self, batch: DataProto, size: int | None, max_tokens: int | None) -> Iterator[MicroBatch]:
        # A token is predicted, and its state valued, one place before it; a reward model judges what it has read.
        shift = 0 if self.role is EngineRole.REWARD else 1
        return micro_batches(
            batch,
            size=size,
            max_tokens=None if max_tokens is None else max_tokens * self.config.sequence_parallel_size,
            padded=self.pads,
            shift=shift,
            collective=self.context.collective,
            device=self.device,
        )

    def _known_outputs(self, module: TokenModel, outputs: Collection[str]) -> frozenset[str]:
        if not outputs or set(outputs) - module.outputs:
            msg = f"outputs {sorted(outputs)} were asked of a {self.role} engine; it has {sorted(module.outputs)}"
            raise ConfigError(msg)
        return frozenset(outputs)

    @property
    def _output_dtype(self) -> torch.dtype:
        return torch.float64 if self.compute_dtype == torch.float64 else torch.float32

    def _loss(
        self, micro: MicroBatch, outputs: Mapping[str, Tensor], loss_fn: LossFunction
    ) -> tuple[Tensor, dict[str, Metric]]:
        seen = {name: micro.padded(values) for name, values in outputs.items()}
        loss, metrics = loss_fn(TokenOutputs(micro.response_mask(), **seen), micro.rows)
        if loss.ndim:
            msg = f"a loss function returns a scalar; {type(loss_fn).__name__} returned shape {tuple(loss.shape)}"
            raise ShapeError(msg)
        return loss, {**metrics, "loss": Metric(float(loss.detach()), "sum", keep_nan=True)}

    def take_work(self) -> EngineWork:
        """See ``TrainingEngine``."""
        return self.work.take()
