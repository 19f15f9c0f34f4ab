"""`rl demo` as a newcomer runs it: a short run of the whole chain, and (slow) what it promises, on three seeds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rl_demo.progress import ACCURACY
from source_tree import ROOT

# The command line's own entry, in a process whose Python reaches no other machine.
OFFLINE = """
import socket, sys
def no_network(*where, **more):
    raise OSError(f"the demonstration asked for the network: {where}")
connect = socket.socket.connect
def local_only(self, address):
    if self.family != socket.AF_UNIX and address[0] not in ("127.0.0.1", "localhost", "::1"):
        no_network(address)
    return connect(self, address)
socket.socket.connect = local_only
resolve = socket.getaddrinfo
socket.getaddrinfo = lambda host, *more, **named: (
    resolve(host, *more, **named) if host in (None, "127.0.0.1", "localhost", "::1", socket.gethostname())
    else no_network(host)
)
from rl_core.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def demo(folder: Path, *arguments: str, timeout: float = 1800) -> str:
    """Run it, and what it printed."""
    variables = {name: value for name, value in os.environ.items() if name not in ("RL_PLUGINS", "RL_BLOCK_PLUGINS")}
    command = [sys.executable, "-c", OFFLINE, "demo", "--folder", str(folder), *arguments]
    done = subprocess.run(
        command, cwd=folder.parent, env=variables, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def run_script(script: str, command: str, cwd: Path) -> str:
    """Run one of the script's two commands, with nothing but the network cut off, and what it printed."""
    only = f'rl() {{ [ "$1" != {command} ] || "{sys.executable}" -c "$OFFLINE" "$@"; }}\n'
    done = subprocess.run(
        ["sh", "-ec", only + script],
        cwd=cwd,
        env=os.environ | {"OFFLINE": OFFLINE},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def grpo_steps(folder: Path, run: str = "grpo") -> list[dict[str, float]]:
    """What each step of GRPO logged; the first line is the validation before it."""
    return [json.loads(line) for line in (folder / run / "metrics.jsonl").read_text().splitlines()]


def test_make_passes_the_seed():
    # Under `make test` this is a make inside a make, which would hand on its flags and say where it enters.
    alone = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}

    def commands(*variables: str) -> str:
        return subprocess.run(
            ["make", "-n", "demo", *variables], cwd=ROOT, capture_output=True, text=True, check=True, env=alone
        ).stdout

    assert commands().splitlines()[-1] == ".venv/base/bin/rl demo "
    assert commands("SEED=7").splitlines()[-1] == '.venv/base/bin/rl demo --seed "7"'


@pytest.mark.heavy
def test_the_whole_chain_on_a_few_steps(tmp_path):
    output = demo(tmp_path / "demo", "--seed", "3", "--sft-steps", "30", "--steps", "3", timeout=400)

    for text in ("1/3", "2/3", "3/3", "Reward", "Before and after", "Time by phase", "Parity", "What to try next"):
        assert text in output
    assert re.search(r"Held-out accuracy: \d+\.\d% after SFT, \d+\.\d% after 3 steps of GRPO", output)
    assert re.search(r"Time: \d+ s: data and model \d+ s, SFT \d+ s, GRPO \d+ s, report \d+ s", output)
    assert (tmp_path / "demo" / "grpo" / "report.html").read_text().startswith("<!")
    assert f"Report:     {tmp_path / 'demo' / 'grpo' / 'report.html'}" in output

    before, *steps = grpo_steps(tmp_path / "demo")
    assert [step["step"] for step in steps] == [1, 2, 3]
    assert ACCURACY in before
    assert ACCURACY in steps[-1]
    assert all(step["training/logprob_gap/mean"] < 1e-5 for step in steps)
    assert all(step["rollout/failed"] == step["reward/missing"] == 0 for step in steps)
    assert re.search(r"show their work: \d+% in its first step, \d+% in its last\.", output)
    assert "two ways of adding" in output
    assert [path.name for path in tmp_path.iterdir()] == ["demo"]

    # The script, with a key changed: it trains, does something else than before, and leaves what there was.
    script = (tmp_path / "demo" / "commands.sh").read_text()
    faster = script.replace("actor_rollout_ref.actor.optim.lr=0.0004", "actor_rollout_ref.actor.optim.lr=0.01")
    assert faster != script
    printed = run_script(faster, "train", tmp_path)
    assert "already complete" not in printed
    _, *again = grpo_steps(tmp_path / "demo", "grpo-again")
    assert [step["actor/lr"] for step in again] == [pytest.approx(25 * step["actor/lr"]) for step in steps]
    assert [step["step"] for step in again] == [1, 2, 3]
    assert again[0]["critic/score/mean"] == steps[0]["critic/score/mean"]
    assert again[-1]["actor/grad_norm"] != pytest.approx(steps[-1]["actor/grad_norm"], rel=1e-3)
    assert grpo_steps(tmp_path / "demo") == [before, *steps]
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == [
        "commands.sh",
        "data",
        "grpo",
        "grpo-again",
        "model",
        "sft",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_from_mediocre_to_good(seed, tmp_path, record_property):
    started = time.perf_counter()
    demo(tmp_path / "demo", "--seed", str(seed))
    seconds = time.perf_counter() - started
    before, *steps = grpo_steps(tmp_path / "demo")
    after = steps[-1]

    gap = max(step["training/logprob_gap/mean"] for step in steps)
    figures = f"held-out accuracy {before[ACCURACY]:.3f} -> {after[ACCURACY]:.3f}, gap {gap:.1e}, {seconds:.0f} s"
    record_property("figures", figures)
    print(f"seed {seed}: {figures}")
    assert 0.3 <= before[ACCURACY] <= 0.6
    assert after[ACCURACY] >= max(0.9, before[ACCURACY] + 0.3)
    assert gap < 1e-5


@pytest.mark.slow
def test_without_a_learning_rate_nothing_is_gained(tmp_path, record_property):
    demo(tmp_path / "demo", "--seed", "1", "--lr", "0")
    before, *steps = grpo_steps(tmp_path / "demo")
    gain = steps[-1][ACCURACY] - before[ACCURACY]
    record_property("figures", f"held-out accuracy {before[ACCURACY]:.3f}, gain {gain:+.3f}")
    assert 0.3 <= before[ACCURACY] <= 0.6
    assert abs(gain) < 0.05
