"""What an engine has computed since it was last asked: tokens, padding, model FLOPs."""

from __future__ import annotations

from rl_core.contracts.engine import EngineWork

from rl_engine.flops import ModelFlops
from rl_engine.micro_batches import MicroBatch


class WorkCount:
    """Adds up passes."""

    def __init__(self) -> None:
        """Nothing computed, by a model that is not known yet."""
        self.model: ModelFlops | None = None
        self._tokens = 0
        self._computed_tokens = 0
        self._flops = 0.0

    def add(self, micro: MicroBatch, *, with_gradient: bool) -> None:
        """One pass over ``micro``; an empty one, in which ranks only meet, counts for nothing."""
        if micro.is_empty:
            return
        lengths = micro.row_lengths
        self._tokens += sum(lengths)
        self._computed_tokens += micro.inputs.input_ids.numel()
        if self.model is not None:
            count = self.model.forward_backward if with_gradient else self.model.forward
            self._flops += count(lengths, micro.response_lengths)

    def take(self) -> EngineWork:
        """The sums since the last call; they start anew."""
        work = EngineWork(self._tokens, self._computed_tokens, None if self.model is None else self._flops)
        self._tokens = self._computed_tokens = 0
        self._flops = 0.0
        return work
