"""What has been accumulated for the next step, where DeepSpeed keeps it.

::

    stage 1    whole gradients at the parameters; added up over ranks and cut when a step is due
    stage 2    added up and cut in each backward pass, this rank's parts in lists of a group
    stage 3    the same, in one flat tensor that is always there
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

_LARGEST_NORM: Final = 1e18
"""DeepSpeed squares norms in float32 once more, and silently takes no step where that overflows."""


class Gradients:
    """The gradients of one engine."""

    def __init__(self, optimizer: Any, stage: int) -> None:
        """Those of DeepSpeed's ``optimizer`` of ZeRO ``stage``."""
        self._optimizer = optimizer
        self._stage = stage
        self.is_any = False
        """Whether there was a backward pass since the last step."""

    def tensors(self) -> Iterator[Tensor]:
        """Everything held for gradients now."""
        optimizer = self._optimizer
        groups = optimizer.fp16_groups if self._stage == 3 else optimizer.bit16_groups
        for group in groups:
            for parameter in group:
                for found in (parameter.grad, getattr(parameter, "grad_accum", None)):
                    if found is not None:
                        yield found
        if self._stage == 3:
            yield optimizer.grad_partitions_flat_buffer
            return
        for lists in (optimizer.averaged_gradients, optimizer.all_grad_tensors):
            for found in lists.values():
                yield from (gradient for gradient in found or () if gradient is not None)

    def finish(self) -> list[Tensor]:
        """Add up over ranks what is not yet, and give this rank's parts. Collective."""
        optimizer = self._optimizer
        if not self.is_any:
            return []
        if self._stage == 1:
            optimizer.set_gradient_accumulation_boundary(True)
            optimizer.reduce_gradients()
        else:
            optimizer.finalize_gradient_accumulation_boundary()
        return [gradient for found in optimizer.averaged_gradients.values() for gradient in found or ()]

    def drop(self) -> None:
        """Forget all of it, also what a step has not used."""
        optimizer = self._optimizer
        optimizer.zero_grad(set_to_none=True)
        if self._stage == 3:
            optimizer.averaged_gradients = {}
            # The next pass overwrites only what it reaches, and not every expert is reached by every pass.
            optimizer.grad_partitions_flat_buffer.zero_()
        else:
            optimizer.micro_step_id = -1
            for lists in (optimizer.averaged_gradients, optimizer.all_grad_tensors):
                for group in lists:
                    lists[group] = None
        self.is_any = False


def norm_over_ranks(gradients: list[Tensor], device: torch.device) -> float:
    """L2 norm over all parts of all ranks. Collective.

    Returns:
        Infinity also where it is too large for DeepSpeed's own arithmetic.
    """
    norms = torch._foreach_norm(gradients) if gradients else []
    squares = [norm.to(device, torch.float64).square() for norm in norms]
    total = torch.stack([torch.zeros((), dtype=torch.float64, device=device), *squares]).sum()
    dist.all_reduce(total)
    norm = float(total.sqrt())
    return norm if norm != norm or norm < _LARGEST_NORM else float("inf")
