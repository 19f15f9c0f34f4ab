"""How long training waits for a checkpoint of the FSDP engine: written at once, or while training goes on.

The state is that of a policy with AdamW: 12 bytes for each weight in float32. Beside it the floors: a plain file of as many
bytes that is on the disk, and a copy of as many bytes in host memory (from the device, where there is one).

    python benchmarks/checkpoint_save.py [--device cuda:0] [--hidden 576] [--layers 30] [--rounds 5] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from rl_backend_fsdp.config import FSDPConfig
from rl_backend_fsdp.engine import FSDPEngine
from rl_core.config.optim import OptimConfig
from rl_core.contracts.engine import EngineConfig, EngineRole, SaveState
from rl_core.single_controller.base.collective import SoloCollective, WorkerContext
from rl_dataproto import DataProto, jagged_from_rows
from transformers import AutoModelForCausalLM, LlamaConfig

VOCABULARY = 49_152
BLOCK = 64 * 2**20


class Loss:
    """A policy gradient."""

    outputs = frozenset({"log_probs"})

    def __call__(self, outputs: Any, rows: Any) -> tuple[torch.Tensor, dict[str, Any]]:
        """The sum of the log-probs, scaled."""
        return (outputs.log_probs * outputs.response_mask).sum() * -1e-3, {}


def main() -> None:
    """Measure, print a line for each kind of save, write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--hidden", type=int, default=576)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="checkpoint-save-") as name:
        home = Path(name)
        engine = start(home / "model", options.hidden, options.layers, options.device)
        num_bytes = train(engine)
        kinds: dict[str, Callable[[Path], float]] = {
            "plain file": lambda path: write_plain(path, num_bytes),
            "copy in memory": lambda path: copy_state(engine),
            "save": lambda path: blocked(lambda: engine.save(path)),
            "start_save": lambda path: blocked(lambda: engine.start_save(path), engine),
        }
        seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
        for round_number in range(options.rounds + 1):
            for kind, measure in kinds.items():
                path = home / "out"
                path.mkdir()
                found = measure(path / "state")
                shutil.rmtree(path)
                if round_number:  # the first one finds cold caches
                    seconds[kind].append(found)
        engine.close()
    result = {
        kind: {
            "median_s": round(statistics.median(values), 3),
            "range_s": [round(min(values), 3), round(max(values), 3)],
        }
        for kind, values in seconds.items()
    }
    for kind, figures in result.items():
        print(
            f"{kind:16s} {figures['median_s']:8.3f} s  {num_bytes / figures['median_s'] / 1e9:6.2f} GB/s  {figures['range_s']}"
        )
    if options.out:
        options.out.write_text(json.dumps({"bytes": num_bytes, "device": options.device, **result}, indent=1))


def start(folder: Path, hidden: int, layers: int, device: str) -> FSDPEngine:
    """A policy of Llama's shape with random weights."""
    heads = max(1, hidden // 64)
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=hidden * 8 // 3,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        vocab_size=VOCABULARY,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    context = WorkerContext(
        rank=0, world_size=1, local_rank=0, local_world_size=1, device=device, collective=SoloCollective()
    )
    engine = FSDPEngine(
        EngineRole.POLICY,
        SimpleNamespace(path=str(folder)),
        EngineConfig(
            optim=OptimConfig(lr=1e-6),
            total_training_steps=1000,
            max_tokens=512,
            forward_max_tokens=512,
            plugin=FSDPConfig(),
        ),
        context,
    )
    engine.initialize()
    return engine


def train(engine: FSDPEngine) -> int:
    """One step, so that there is an optimizer state; the bytes of the whole state."""
    rows = [torch.arange(16) + 100 * row for row in range(2)]
    batch = DataProto.from_dict(
        tensors={
            "input_ids": jagged_from_rows(rows),
            "responses": jagged_from_rows([row[8:] for row in rows]),
            "response_mask": jagged_from_rows([torch.ones(8, dtype=torch.bool) for _ in rows]),
        }
    )
    engine.forward_backward(batch, Loss())
    engine.optimizer_step()
    return sum(tensor.numel() * tensor.element_size() for tensor in state_tensors(engine))


def state_tensors(engine: FSDPEngine) -> list[torch.Tensor]:
    """Weights and optimizer state."""
    assert engine.optimizer is not None
    states = [tensor for state in engine.optimizer.state.values() for tensor in state.values()]
    return [*engine.parameters(), *(tensor for tensor in states if isinstance(tensor, torch.Tensor))]


def write_plain(path: Path, num_bytes: int) -> float:
    """Seconds for a file of zeros that is on the disk afterwards."""
    block = bytes(BLOCK)
    started = time.perf_counter()
    with path.open("wb") as file:
        for place in range(0, num_bytes, BLOCK):
            file.write(block[: num_bytes - place])
        file.flush()
        os.fsync(file.fileno())
    return time.perf_counter() - started


def copy_state(engine: FSDPEngine) -> float:
    """Seconds for a copy of the state in fresh host memory."""
    started = time.perf_counter()
    copies = [tensor.detach().to("cpu", copy=True) for tensor in state_tensors(engine)]
    seconds = time.perf_counter() - started
    del copies
    return seconds


def blocked(call: Callable[[], None], engine: FSDPEngine | None = None) -> float:
    """Seconds that training waits for ``call``; what ``engine`` still writes then is waited for, and not counted."""
    started = time.perf_counter()
    call()
    seconds = time.perf_counter() - started
    if engine is not None:
        while engine.poll_save() is SaveState.WRITING:
            time.sleep(0.05)
        engine.finish_save()
    return seconds


if __name__ == "__main__":
    main()
