"""Workers that a launcher started: the engine opens the process group itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from rl_testing.models import save_tiny_model

SCRIPT = '''
import json, os, pickle, sys
from types import SimpleNamespace
import torch, torch.distributed as dist
torch.set_num_threads(1)
from rl_backend_fsdp.engine import FSDPEngine
from rl_core.contracts.engine import EngineConfig, EngineRole
from rl_core.single_controller.base.collective import WorkerContext
from rl_testing.contracts.engine_batch import as_batch, make_rows, num_tokens
from rl_testing.contracts.engine_calls import stream, train
from rl_testing.contracts.engine_losses import PolicyLoss
from rl_testing.contracts.engine_suite import SGD

class ByStore:
    """A collective of the runtime's own, without a process group: as Ray may bring one."""

    def __init__(self, rank, size):
        self.rank, self.world_size, self.calls = rank, size, 0
        self.store = dist.TCPStore("127.0.0.1", int(sys.argv[3]), size, is_master=rank == 0)

    def all_gather_object(self, obj, timeout_s=None):
        self.calls += 1
        self.store.set(f"{self.calls}/{self.rank}", pickle.dumps(obj))
        return [pickle.loads(self.store.get(f"{self.calls}/{rank}")) for rank in range(self.world_size)]

    def broadcast_object(self, obj, source=0, timeout_s=None):
        return self.all_gather_object(obj)[source]


context = WorkerContext.from_env(collective=ByStore(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])))
rows = make_rows(64)
engine = FSDPEngine(EngineRole.POLICY, SimpleNamespace(path=sys.argv[1]), EngineConfig(optim=SGD), context)
engine.initialize()
steps = train(engine, batches=[as_batch(rows)] * 2, loss_fn=PolicyLoss(num_tokens(rows)))
digest = stream(engine).digest
context.collective.all_gather_object("about to leave")
engine.close()
report = {
    "norms": [step.result.grad_norm for step in steps],
    "digest": sum(digest.values()) % 2**64,
    "open_after_close": dist.is_initialized(),
}
with open(f"{sys.argv[2]}/{context.rank}.json", "w") as file:
    json.dump(report, file)
'''


@pytest.mark.heavy
def test_two_launched_workers_meet_and_leave_nothing_open(tmp_path):
    model = save_tiny_model(tmp_path / "model", vocab_size=64, hidden_size=32, with_tokenizer=False)
    (tmp_path / "script.py").write_text(SCRIPT)
    port, store = free_ports(2)
    processes = []
    for rank in range(2):
        variables = {
            "RANK": rank,
            "WORLD_SIZE": 2,
            "LOCAL_RANK": rank,
            "LOCAL_WORLD_SIZE": 2,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "OMP_NUM_THREADS": 1,
        }
        command = [sys.executable, str(tmp_path / "script.py"), str(model), str(tmp_path), str(store)]
        environment = os.environ | {name: str(value) for name, value in variables.items()}
        processes.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    try:
        for process in processes:
            _, errors = process.communicate(timeout=150)
            assert process.returncode == 0, errors
    finally:
        for process in processes:
            process.kill()
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert not first["open_after_close"]
    assert all(norm > 0 for norm in first["norms"])


def free_ports(count):
    import socket

    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports
