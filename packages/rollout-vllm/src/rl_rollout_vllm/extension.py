"""What vLLM's workers can be asked for (``collective_rpc``), beside taking weights."""

from __future__ import annotations

import os
from typing import Any

import torch

from rl_rollout_vllm.draws import DrawMode, install
from rl_rollout_vllm.owner import watch_owner
from rl_rollout_vllm.worker import WeightWorker

watch_owner()  # here and not in a method: the owner may be gone before the engine has started


class WorkerExtension(WeightWorker):
    """Mixed into vLLM's worker class, so ``self`` is a worker of vLLM; names must differ from those that it has."""

    def rl_prepare(self) -> DrawMode:
        """Make draws depend on (seed, position), and count preemptions from here on."""
        runner: Any = self.model_runner  # type: ignore[attr-defined]
        if not hasattr(runner, "rl_preemptions"):
            runner.rl_preemptions = 0
            execute = runner.execute_model

            def counting(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
                runner.rl_preemptions += len(scheduler_output.preempted_req_ids or ())
                return execute(scheduler_output, *args, **kwargs)

            runner.execute_model = counting
        return install(runner)

    def rl_process(self) -> int:
        """Number of this process."""
        return os.getpid()

    def rl_preemptions(self) -> int:
        """How many sequences had to give their cache away since the start."""
        return int(self.model_runner.rl_preemptions)  # type: ignore[attr-defined]

    def rl_memory(self) -> dict[str, int]:
        """Bytes: what the weights and the cache take, and what the device and torch say."""
        runner: Any = self.model_runner  # type: ignore[attr-defined]
        device = torch.device(self.device)  # type: ignore[attr-defined]
        found = {
            "weights": _bytes(runner.get_model().parameters()),
            "kv_cache": _bytes(_tensors(runner.kv_caches)),
        }
        if device.type == "cuda":
            free, total = torch.cuda.mem_get_info(device)
            found |= {
                "free": free,
                "total": total,
                "allocated": torch.cuda.memory_allocated(device),
                "reserved": torch.cuda.memory_reserved(device),
            }
        return found


def _tensors(caches: Any) -> list[torch.Tensor]:
    flat: list[torch.Tensor] = []
    for cache in caches:
        flat += [cache] if isinstance(cache, torch.Tensor) else _tensors(cache)
    return flat


def _bytes(tensors: Any) -> int:
    """Of all storages, each once."""
    return sum({tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}.values())
