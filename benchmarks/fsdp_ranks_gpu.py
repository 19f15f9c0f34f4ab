"""The FSDP engine on several NCCL ranks that share one GPU: does every arrangement come to the numbers of one rank?

No speed is measured: ranks on one device wait for each other. Each arrangement starts its processes anew, scores a batch, takes
two SGD steps on it and hands back scores, losses and gradient norms. In float32 they must be those of one rank within 1e-4 of
their size (CUDA kernels choose other orders of summation for other shapes); in bfloat16, where the variable-length kernel
computes attention, within 2e-2.

    python benchmarks/fsdp_ranks_gpu.py [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import socket
import sys
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from rl_backend_fsdp.config import FSDPConfig
from rl_backend_fsdp.engine import FSDPEngine
from rl_core.config.optim import OptimConfig
from rl_core.contracts.engine import EngineConfig, EngineRole
from rl_core.single_controller.base.collective import SoloCollective, WorkerContext
from rl_core.single_controller.base.torch_collective import TorchCollective
from rl_dataproto import DataProto, jagged_from_rows
from transformers import AutoModelForCausalLM, Qwen2Config

VOCABULARY = 512
LIMITS = {"float32": 1e-4, "bfloat16": 2e-2}
PROMPT = 8


@dataclass(frozen=True)
class Arrangement:
    """How ranks share the work.

    Attributes:
        name: as the table says it.
        ranks: processes.
        sequence: ranks that share one sequence.
        shards: ranks that share one copy of the model; -1 is all.
        compiled: compile blocks.
    """

    name: str
    ranks: int
    sequence: int = 1
    shards: int = -1
    compiled: bool = False


ARRANGEMENTS = (
    Arrangement("one rank, compiled", 1, compiled=True),
    Arrangement("2 shards", 2),
    Arrangement("2 copies", 2, shards=1),
    Arrangement("a sequence on 2 ranks", 2, sequence=2),
    Arrangement("4 shards", 4),
    Arrangement("2 copies of 2 shards", 4, shards=2),
    Arrangement("a sequence on 4 ranks", 4, sequence=4),
    Arrangement("a sequence on 2 ranks, twice, 2 copies", 4, sequence=2, shards=2),
)


class Loss:
    """The sum of log-probs over the tokens of the whole batch."""

    outputs = frozenset({"log_probs"})

    def __call__(self, outputs: Any, rows: Any) -> tuple[torch.Tensor, dict[str, Any]]:
        """This micro-batch's share."""
        return -(outputs.log_probs * outputs.response_mask).sum() / NUM_TOKENS, {}


LENGTHS = [17, 64, 5, 33, 90, 41, 12, 8]
NUM_TOKENS = sum(LENGTHS)


def main() -> int:
    """Run all, print the largest deviations; 1 if one is beyond its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    _save_model(folder / "model")
    failed, lines = 0, []
    for dtype, limit in LIMITS.items():
        expected = _run(Arrangement("one rank", 1), dtype, folder)
        for arrangement in ARRANGEMENTS:
            try:
                found = _run(arrangement, dtype, folder)
            except (RuntimeError, mp.ProcessRaisedException) as error:  # type: ignore[attr-defined]
                result = {"arrangement": arrangement.name, "dtype": dtype, "error": str(error)[-900:]}
                failed += 1
            else:
                gaps = {key: _gap(found[key], expected[key]) for key in ("scores", "losses", "norms")}
                is_good = all(gap <= limit for gap in gaps.values())
                failed += not is_good
                result = {"arrangement": arrangement.name, "dtype": dtype, "attention": found["attention"]}
                result |= {"good": is_good, **{key: float(f"{gap:.2g}") for key, gap in gaps.items()}}
            lines.append(result)
            print("RESULT", json.dumps(result), flush=True)
    if options.out:
        options.out.write_text(json.dumps(lines, indent=1))
    return int(failed > 0)


def _gap(found: list[float], expected: list[float]) -> float:
    """Largest difference, relative to the largest number."""
    one, other = torch.tensor(found, dtype=torch.float64), torch.tensor(expected, dtype=torch.float64)
    return float((one - other).abs().max() / other.abs().max())


def _save_model(folder: Path) -> None:
    config = Qwen2Config(
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        vocab_size=VOCABULARY,
    )
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)


def _batch() -> DataProto:
    generator = torch.Generator().manual_seed(1)
    ids = [torch.randint(0, VOCABULARY, (PROMPT + length,), generator=generator) for length in LENGTHS]
    responses = [row[PROMPT:] for row in ids]
    masks = [torch.ones(len(row), dtype=torch.bool) for row in responses]
    return DataProto.from_dict(
        tensors={
            "input_ids": jagged_from_rows(ids),
            "responses": jagged_from_rows(responses),
            "response_mask": jagged_from_rows(masks),
        }
    )


def _run(arrangement: Arrangement, dtype: str, folder: Path) -> dict[str, Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    out = folder / "result.json"
    out.unlink(missing_ok=True)
    mp.spawn(_rank, args=(arrangement, dtype, str(folder), port), nprocs=arrangement.ranks, join=True)
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def _rank(rank: int, arrangement: Arrangement, dtype: str, folder: str, port: int) -> None:
    logging.basicConfig(level=logging.ERROR)
    os.environ |= {"NCCL_HOSTID": f"rank{rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
    torch.cuda.set_device(0)
    size, collective = arrangement.ranks, SoloCollective()
    if size > 1:
        address = f"tcp://127.0.0.1:{port}"
        limit = timedelta(seconds=100)
        dist.init_process_group("cpu:gloo,cuda:nccl", init_method=address, rank=rank, world_size=size, timeout=limit)
        collective = TorchCollective.of_default_group(deadline_s=100, name="ranks")
    context = WorkerContext(
        rank=rank,
        world_size=size,
        local_rank=rank,
        local_world_size=size,
        device="cuda:0",
        collective=collective,
        master_port=port,
    )
    engine = FSDPEngine(
        EngineRole.POLICY,
        SimpleNamespace(path=f"{folder}/model"),
        EngineConfig(
            max_tokens=128,
            forward_max_tokens=128,
            grad_clip=1.0,
            optim=OptimConfig(lr=0.1, optimizer="SGD", weight_decay=0.0),
            sequence_parallel_size=arrangement.sequence,
            compiled=arrangement.compiled,
            plugin=FSDPConfig(fsdp_size=arrangement.shards, dtype=dtype),
        ),
        context,
    )
    engine.initialize()
    info = engine.dispatch_info()
    batch = _batch()
    mine = [row for row in range(len(LENGTHS)) if row % info.dp_size == info.dp_rank]
    rows = batch.select_idxs(mine)
    scores = engine.forward(rows, {"log_probs"})
    losses, norms = [], []
    for _ in range(2):
        metrics = engine.forward_backward(rows, Loss())
        losses.append(0.0 if metrics is None else metrics["loss"].value)
        norms.append(engine.optimizer_step().grad_norm)
    by_row = (
        {}
        if scores is None
        else dict(zip(mine, map(torch.Tensor.tolist, scores.batch["log_probs"].unbind()), strict=True))
    )
    gathered = collective.all_gather_object((by_row, losses))
    if rank == 0:
        together = {row: values for part, _ in gathered for row, values in part.items()}
        result = {
            "scores": [value for row in sorted(together) for value in together[row]],
            "losses": [sum(part[step] for _, part in gathered) for step in range(2)],
            "norms": norms,
            "attention": engine.attention,
        }
        Path(folder, "result.json").write_text(json.dumps(result))
    collective.barrier()
    engine.close()
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
