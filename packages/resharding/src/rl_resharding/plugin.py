"""What this distribution provides. Read by every process and by ``rl plugins list``, so it loads no engine."""

from __future__ import annotations

from collections.abc import Iterable

from rl_core import hookimpl
from rl_core.plugins.records import Record, ReshardingRecord


@hookimpl
def rl_plugins() -> Iterable[Record]:
    """The movers. Engines in the trainer's own process, such as ``hf``, copy from its tensors: the generic mover is theirs."""
    return [
        ReshardingRecord(
            name="staged",
            target="rl_resharding.movers:StagedResharding",
            summary="Flat buffers in turn, gathered while the last one loads: CUDA IPC on a GPU, shared memory on a CPU.",
            rollout="vllm",
            transport="flat_buffers",
        )
    ]
