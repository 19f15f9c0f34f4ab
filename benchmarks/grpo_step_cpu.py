"""GRPO on one CPU thread, ours (`rl train` with fsdp and hf, in one process) beside `GRPOTrainer` of TRL.

Both sides train the same random model on the same prompts with the same reward: groups of four, one optimizer step of
AdamW on the whole batch, float32, no KL term, no gradient checkpointing. Responses have one length, or end by chance with
the same distribution. Each side is a process of its own in its own environment. This script asks them in turn for a few
steps, so a busy moment of the machine hits both; which side goes first changes every round. Prints a table; with a peer it
also writes benchmarks/results/grpo_step_cpu.md.

    OMP_NUM_THREADS=1 python benchmarks/grpo_step_cpu.py --peer-python PEER/bin/python [--rounds 9]

PEER is an environment made by `pip install -c constraints/cpu.txt torch==2.13.0 trl`. Without it, only ours is timed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

RESULT = Path(__file__).parent / "results" / "grpo_step_cpu.md"
TARGET = 2.0
MARK = "RESULT "
GROUP = 4
NEVER = 1 << 20
"""A token id that no model here has."""


@dataclass(frozen=True)
class Case:
    """What is trained.

    Attributes:
        title: as the table says it.
        rows: responses of a step, in groups of four.
        length: tokens of each response.
        steps: steps that a side takes when it is its turn.
        sizes: of the model.
        num_endings: how many token ids end a response before ``length``; 0 gives all that length.
    """

    title: str
    rows: int
    length: int
    steps: int
    sizes: Mapping[str, int]
    num_endings: int = 0


SMALL = {"hidden_size": 128, "num_layers": 2, "num_heads": 4, "num_key_value_heads": 2, "vocab_size": 512}
LARGER = {"hidden_size": 256, "num_layers": 4, "num_heads": 8, "num_key_value_heads": 4, "vocab_size": 2048}
CASES = {
    "main": Case("2 layers, hidden 128; 32 responses of 32 tokens", 32, 32, 10, SMALL),
    "longer": Case("2 layers, hidden 128; 64 responses of 64 tokens", 64, 64, 4, SMALL),
    "mixed": Case("2 layers, hidden 128; 64 responses of up to 128 tokens", 64, 128, 3, SMALL, num_endings=16),
    "larger": Case("4 layers, hidden 256; 64 responses of 64 tokens", 64, 64, 2, LARGER),
}


def ending_ids(case: Case) -> list[int]:
    """Ids that no text here has."""
    return list(range(300, 300 + case.num_endings))


def prompts() -> list[str]:
    """100 prompts of one length."""
    return [f"{a}+{b}=" for a in range(10) for b in range(10)]


def score(text: str) -> float:
    """The share of digits."""
    return sum(character.isdigit() for character in text) / max(1, len(text))


def compute_score(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None) -> float:
    """The reward function as `rl train` calls it."""
    return score(solution_str)


class Turns:
    """The child's end: steps on when it is asked to, and answers with the seconds that it took."""

    def __init__(self, **about: Any) -> None:
        """Say hello with ``about`` and wait for the first request."""
        self._answer = {"python": platform.python_version(), **about}
        self._left = 0
        self._next()

    def step(self, phases: Mapping[str, float], mean_length: float) -> None:
        """A step is done; returns when another one is wanted."""
        self._lengths.append(mean_length)
        for name, seconds in phases.items():
            self._phases[name] = self._phases.get(name, 0.0) + seconds
        self._left -= 1
        if self._left == 0:
            self._answer = {
                "wall_s": time.perf_counter() - self._started,
                "cpu_s": time.process_time() - self._cpu_started,
                "phases": self._phases,
                "mean_length": statistics.fmean(self._lengths),
            }
            self._next()

    def _next(self) -> None:
        print(MARK + json.dumps(self._answer), flush=True)
        line = sys.stdin.readline()
        if not line.strip():
            _leave()
        self._left = int(line)
        self._phases: dict[str, float] = {}
        self._lengths: list[float] = []
        self._started, self._cpu_started = time.perf_counter(), time.process_time()


def _leave() -> NoReturn:
    raise SystemExit(0)


def versions(*names: str) -> dict[str, str]:
    """Of distributions."""
    return {name: importlib.metadata.version(name) for name in names}


def serve_ours(case: Case, folder: Path, *extra: str) -> None:
    """Train with this system until nobody asks for steps any more."""
    import torch
    from rl_core import hookimpl
    from rl_core.config import compose_request, parse_cli
    from rl_core.plugins import get_registry
    from rl_core.trainer.main_ppo import run_ppo

    torch.set_num_threads(1)

    class Observer:
        """Tells the other end of each step."""

        turns: Turns | None = None

        @hookimpl
        def rl_step_finished(self, metrics: Mapping[str, float]) -> None:
            # The first step takes memory and loads what is loaded late; it is not counted.
            if self.turns is None:
                self.turns = Turns(versions=versions("rl-core", "torch", "transformers"))
                return
            prefix = "timing_s/"
            phases = {k.removeprefix(prefix): v for k, v in metrics.items() if k.startswith(prefix)}
            self.turns.step(phases, metrics["response_length/mean"])

    get_registry().register_distribution("grpo-step-cpu", "1", Observer())
    rows = folder / "rows.jsonl"
    rows.write_text(
        "\n".join(
            json.dumps({"prompt": text, "data_source": "digits", "reward_model": {"ground_truth": ""}})
            for text in prompts()
        )
    )
    run_ppo(
        compose_request(
            parse_cli(
                [
                    "algorithm.adv_estimator=grpo",
                    f"data.train_files={rows}",
                    "data.val_files=null",
                    f"data.train_batch_size={case.rows // GROUP}",
                    f"data.max_response_length={case.length}",
                    "data.max_prompt_length=8",
                    f"custom_reward_function.path={Path(__file__).resolve()}",
                    f"actor_rollout_ref.model.path={folder / 'model'}",
                    "actor_rollout_ref.model.enable_gradient_checkpointing=False",
                    "actor_rollout_ref.actor.strategy=fsdp",
                    f"actor_rollout_ref.actor.ppo_mini_batch_size={case.rows // GROUP}",
                    "actor_rollout_ref.actor.optim.lr=1e-6",
                    "actor_rollout_ref.actor.optim.weight_decay=0",
                    "actor_rollout_ref.rollout.name=hf",
                    f"actor_rollout_ref.rollout.n={GROUP}",
                    f"actor_rollout_ref.rollout.ignore_eos={not case.num_endings}",
                    "trainer.runtime=local",
                    "trainer.device=cpu",
                    "trainer.save_freq=0",
                    "trainer.test_freq=0",
                    "trainer.total_epochs=1000000",
                    f"trainer.default_local_dir={folder / 'run'}",
                    *extra,
                ]
            )
        )
    )


def serve_trl(case: Case, folder: Path) -> None:
    """Train with TRL until nobody asks for steps any more."""
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(1)

    class Observer(TrainerCallback):
        """Tells the other end of each step."""

        turns: Turns | None = None

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if self.turns is None:
                self.turns = Turns(versions=versions("trl", "torch", "transformers"))
                return
            self.turns.step({}, trainer._metrics["train"]["completions/mean_length"][-1])

    def reward(completions: list[str], **kwargs: Any) -> list[float]:
        return [score(text) for text in completions]

    trainer = GRPOTrainer(
        model=str(folder / "model"),
        reward_funcs=reward,
        args=GRPOConfig(
            output_dir=str(folder / "peer"),
            use_cpu=True,
            bf16=False,
            per_device_train_batch_size=case.rows,
            num_generations=GROUP,
            max_completion_length=case.length,
            max_steps=10**6,
            lr_scheduler_type="constant",
            learning_rate=1e-6,
            beta=0.0,
            gradient_checkpointing=False,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list([{"prompt": text} for text in prompts()]),
        callbacks=[Observer()],
    )
    # Responses of one length, as rollout.ignore_eos gives them: the end of a sequence is a token that is never drawn.
    endings = ending_ids(case) or [NEVER]
    trainer.eos_token_ids = endings
    for settings in (trainer.generation_config, trainer.model.generation_config):
        settings.eos_token_id = endings
    trainer.generation_kwargs["eos_token_id"] = endings
    trainer.train()


class Side:
    """A process that trains when it is asked to.

    Args:
        title: how the table calls it.
        python: its interpreter.
        name: which ``serve`` function it runs.
        case: what is trained.
        folder: of its model and files.
        extra: keys of the configuration.
    """

    def __init__(self, title: str, python: str, name: str, case: str, folder: Path, *extra: str) -> None:
        self.title = title
        self.case = CASES[case]
        self.turns: list[dict[str, Any]] = []
        self.log = (folder / f"{name}.log").open("w")
        self.process = subprocess.Popen(
            [python, str(Path(__file__).resolve()), "--serve", name, case, str(folder), *extra],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
        )
        self.about = self.answer()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(MARK):
                return json.loads(line[len(MARK) :])
        msg = f"The {self.title} process ended with {self.process.wait()}:\n{Path(self.log.name).read_text()[-3000:]}"
        raise RuntimeError(msg)

    def turn(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{self.case.steps}\n")
        self.process.stdin.flush()
        self.turns.append(self.answer())

    def close(self) -> None:
        self.process.communicate(timeout=60)
        self.log.close()

    def rates(self, clock: str) -> list[float]:
        """Samples per second of each turn but the first, which warms up."""
        return [self.case.rows * self.case.steps / turn[clock] for turn in self.turns[1:]]


def measure(sides: list[Side], rounds: int) -> None:
    """All sides in turn, ``rounds`` times after one round that warms up."""
    for number in range(rounds + 1):
        for side in sides if number % 2 else sides[::-1]:
            side.turn()


def spread(values: list[float], digits: int = 0) -> str:
    """Median and the middle half."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.{digits}f} ({low:.{digits}f} - {high:.{digits}f})"


def ratios(ours: Side, theirs: Side, clock: str) -> list[float]:
    """Of the rates of each round."""
    return [mine / other for mine, other in zip(ours.rates(clock), theirs.rates(clock), strict=True)]


def phase_line(side: Side) -> str:
    """Milliseconds of a step by phase, the median over turns."""
    names = dict.fromkeys(name for turn in side.turns for name in turn["phases"])
    medians = {
        name: statistics.median(turn["phases"].get(name, 0.0) for turn in side.turns[1:]) * 1e3 / side.case.steps
        for name in names
    }
    return ", ".join(f"{name} {value:.1f}" for name, value in medians.items() if value >= 0.05)


def run_case(name: str, peer_python: str | None, rounds: int, extra: list[str]) -> list[Side]:
    """Both sides of one case, measured."""
    from rl_testing.models import save_tiny_model

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        sizes: dict[str, Any] = dict(CASES[name].sizes)
        save_tiny_model(folder / "model", model_type="qwen2", initializer_range=0.02, **sizes)
        (folder / "model" / "chat_template.jinja").unlink(missing_ok=True)
        if CASES[name].num_endings:
            settings = folder / "model" / "generation_config.json"
            found = json.loads(settings.read_text())
            settings.write_text(json.dumps(found | {"eos_token_id": ending_ids(CASES[name])}))
        sides = [Side("ours", sys.executable, "ours", name, folder, *extra)]
        if peer_python:
            sides.append(Side("TRL", peer_python, "trl", name, folder))
        measure(sides, rounds)
        for side in sides:
            side.close()
    return sides


def rows_of(measured: Mapping[str, list[Side]]) -> list[str]:
    """The table: a row for each case and clock."""
    rows = [
        "| case | mean length, ours and TRL | clock | ours [samples/s] | TRL [samples/s] | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for name, sides in measured.items():
        lengths = " and ".join(
            f"{statistics.fmean(turn['mean_length'] for turn in side.turns[1:]):.1f}" for side in sides
        )
        for clock, title in (("cpu_s", "CPU"), ("wall_s", "wall")):
            ratio = spread(ratios(sides[0], sides[1], clock), 2) if len(sides) > 1 else ""
            rates = [spread(side.rates(clock)) for side in sides]
            rows.append(f"| {CASES[name].title} | {lengths} | {title} | {rates[0]} | {''.join(rates[1:])} | {ratio} |")
    return rows


def report(measured: Mapping[str, list[Side]], rounds: int) -> str:
    """The result file."""
    sides = next(iter(measured.values()))
    about = "\n".join(
        f"- {side.title}: Python {side.about['python']}, "
        + ", ".join(f"{name} {version}" for name, version in side.about["versions"].items())
        for side in sides
    )
    phases = "\n".join(f"- {CASES[name].title}: {phase_line(both[0])}" for name, both in measured.items())
    table = "\n".join(rows_of(measured))
    return f"""# GRPO steps beside TRL 1.16

{table}

Target: {TARGET:.0f}. Median of {rounds} turns, in brackets the middle half; a ratio is taken within each round. CPU is the
processor time of the process, which other work on the machine disturbs less than wall time.

Where ours goes, wall milliseconds of a step (`update_weights` is part of `gen`):

{phases}

What both do: groups of 4 from 100 prompts of four tokens, temperature 1, a reward function on the decoded text, advantages
normalised by group, the clipped loss averaged over tokens, one optimizer step of AdamW on the whole batch (learning rate
1e-6, no decay, gradient norm at most 1), float32, one thread, no reference model, no gradient checkpointing. Mixed lengths:
16 of 512 tokens end a response.

What only ours does: log-probs of the sampled tokens while generating; `old_log_probs` recomputed by the training engine (TRL
takes those of the update itself, as it makes one step on fresh samples), compared with the generator's at every step;
weights handed over to a generator of its own at every step, with a digest of every tensor; generator and training states
taken and given back around each phase; a line on the console and in `metrics.jsonl` for every step (TRL: one in ten). None
of it is switched off here. What only TRL does: the entropy, for its log.

Ours packs rows without padding and admits sequences one by one; TRL pads a batch to its longest prompt and response and
generates until the longest is done.

{about}
- {os.cpu_count()} cores, {platform.machine()}, {platform.system()}

    OMP_NUM_THREADS=1 python benchmarks/grpo_step_cpu.py --peer-python PEER/bin/python --rounds {rounds}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="interpreter of an environment with trl; without it only ours is timed")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--case", choices=CASES, action="append", help="only this case; may be given several times")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="one more key of ours")
    parser.add_argument("--no-write", action="store_true", help="leave the result file alone")
    parser.add_argument("--serve", nargs="+", help=argparse.SUPPRESS)
    args, rest = parser.parse_known_args()
    if args.serve:
        side, case, folder, *extra = args.serve + rest
        {"ours": serve_ours, "trl": serve_trl}[side](CASES[case], Path(folder), *extra)
        return 0
    measured = {name: run_case(name, args.peer_python, args.rounds, args.set) for name in args.case or CASES}
    print("\n".join(rows_of(measured)))
    for name, sides in measured.items():
        print(f"{name} [ms]: {phase_line(sides[0])}")
    if args.peer_python and not (args.no_write or args.case or args.set):
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(report(measured, args.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
