"""Does each method learn? Every advantage estimator and policy loss on the task of `rl demo`, from one mediocre model.

The model of the demonstration is trained by SFT once; each case then is `rl train` from there with the demonstration's
GRPO arguments and its own few keys, in a process of its own. The held-out accuracy is measured before the first step and
every `--test-freq` steps. Writes benchmarks/results/learning_cpu.md and a picture with all curves, and fails if an
estimator does not beat its start.

    OMP_NUM_THREADS=1 python benchmarks/learning_cpu.py [--only NAME ...] [--steps 100] [--seed 1] [--folder DIR]

A case whose run folder is finished is not trained again, so an interrupted benchmark goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_core.trainer.sft import main as sft
from rl_demo.files import write_data
from rl_demo.model import save_model
from rl_demo.problems import split_problems
from rl_demo.stages import SFT_STEPS, grpo_arguments, sft_arguments, sft_model

RESULTS = Path(__file__).parent / "results"
ACCURACY = "val-core/demo/sums/acc/mean@1"
ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
LOSS = f"{ACTOR}.policy_loss.loss_mode"
LEARNING_RATE = 4e-4
SEQUENCE_MEAN = {f"{ACTOR}.loss_agg_mode": "seq-mean-token-mean"}


@dataclass(frozen=True)
class Case:
    """One method.

    Attributes:
        name: as the table says it.
        keys: what it sets beyond the demonstration's GRPO.
        family: "estimator", "loss" or "recipe"; a curve's panel.
        steps: of its run; None is what is asked for. Dynamic sampling ends where hardly any prompt is left to learn from.
    """

    name: str
    family: str
    keys: Mapping[str, Any] = field(default_factory=dict)
    steps: int | None = None


def _estimator(name: str, **keys: Any) -> Case:
    return Case(name, "estimator", {"algorithm.adv_estimator": name, **keys})


def _loss(name: str, keys: Mapping[str, Any] | None = None) -> Case:
    return Case(name, "loss", {LOSS: name, **(keys or {})})


CRITIC = {"critic.model.enable_gradient_checkpointing": False, "critic.optim.lr": 1e-3}
CASES: tuple[Case, ...] = (
    _estimator("gae", **CRITIC),
    Case("gae + PF-PPO", "estimator", {"algorithm.adv_estimator": "gae", "algorithm.use_pf_ppo": True, **CRITIC}),
    _estimator("grpo"),
    Case(
        "dr_grpo",
        "estimator",
        {"algorithm.norm_adv_by_std_in_grpo": False, f"{ACTOR}.loss_agg_mode": "seq-mean-token-sum-norm"},
    ),
    _estimator("grpo_passk"),
    Case(
        "gdpo",
        "estimator",
        {
            "algorithm.adv_estimator": "gdpo",
            "algorithm.gdpo_reward_keys": "[acc,shows_work]",
            "algorithm.gdpo_reward_weights": "[1.0,0.1]",
        },
    ),
    _estimator("reinforce_plus_plus"),
    _estimator("reinforce_plus_plus_baseline"),
    _estimator("rloo"),
    _estimator("remax"),
    _estimator("opo"),
    _estimator("gpg", **{LOSS: "gpg"}),
    _estimator("optimal_token_baseline"),
    _estimator("tir_optimal_token_baseline"),
    _loss("gspo", SEQUENCE_MEAN | {f"{ACTOR}.clip_ratio_low": 3e-4, f"{ACTOR}.clip_ratio_high": 4e-4}),
    _loss("cispo"),
    _loss("sapo", SEQUENCE_MEAN),
    _loss("geo_mean", SEQUENCE_MEAN | {f"{ACTOR}.clip_ratio_low": 0.4, f"{ACTOR}.clip_ratio_high": 0.4}),
    _loss("clip_cov"),
    _loss("kl_cov"),
    _loss("dppo_tv"),
    _loss("dppo_kl"),
    _loss("dro", {f"{ACTOR}.policy_loss.dro_beta": 0.1}),
    Case("recipe=dapo", "recipe", {"recipe": "dapo"}, steps=60),
    Case("recipe=prime", "recipe", {"recipe": "prime"}),
)


def main() -> int:
    """Train what is asked for, write the results; 1 if an estimator did not beat its start."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="cases by name")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--test-freq", type=int, default=10)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "learning_cpu")
    options = parser.parse_args()
    cases = [case for case in CASES if options.only is None or case.name in options.only]
    folder = options.folder.absolute()
    data, model = _start(folder, options.seed)
    rows = []
    for case in cases:
        run = folder / f"steps{options.steps}-seed{options.seed}" / case.name.replace(" ", "").replace("=", "-")
        steps = min(options.steps, case.steps or options.steps)
        arguments = grpo_arguments(model, data, run, seed=options.seed, steps=steps, learning_rate=LEARNING_RATE)
        seconds = _train(run, [*arguments, f"trainer.test_freq={options.test_freq}", *_overrides(case.keys)])
        curve = _curve(run)
        rows.append((case, curve, seconds))
        print(f"{case.name:32} {_ends(curve)}  {seconds:.0f} s", flush=True)
    if options.only is None:
        _write(rows, options)
    failed = [case.name for case, curve, _ in rows if case.family == "estimator" and not curve[-1][1] > curve[0][1]]
    print(f"did not beat their start: {', '.join(failed) or 'none'}")
    return int(bool(failed))


def _start(folder: Path, seed: int) -> tuple[Any, Path]:
    """Data, and the model after SFT."""
    data = write_data(folder / f"data{seed}", split_problems(seed), seed)
    run = folder / f"sft{seed}"
    if not sft_model(run).is_dir():
        save_model(folder / f"model{seed}", seed)
        sft(sft_arguments(folder / f"model{seed}", data, run, seed=seed, steps=SFT_STEPS))
    return data, sft_model(run)


def _overrides(keys: Mapping[str, Any]) -> list[str]:
    return [f"{key}={value}" for key, value in keys.items()]


def _train(run: Path, arguments: Sequence[str]) -> float:
    """CPU seconds of the run; those of an earlier one if the folder has a finished one."""
    done = run / "cpu_seconds.txt"
    if done.is_file():
        return float(done.read_text())
    run.parent.mkdir(parents=True, exist_ok=True)
    log = run.with_suffix(".log")
    before = os.times()
    with log.open("w") as out:
        command = [sys.executable, "-m", "rl_core.trainer.main_ppo", *arguments]
        status = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False).returncode
    if status:
        sys.exit(f"{run.name} ended with status {status}:\n{log.read_text()[-3000:]}")
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    done.write_text(str(spent))
    return spent


def _curve(run: Path) -> list[tuple[int, float]]:
    """(step, held-out accuracy)."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    points = {}
    for line in lines:
        values = line.get("metrics", line)
        if values.get(ACCURACY) is not None:
            points[int(line["step"])] = float(values[ACCURACY])
    return sorted(points.items())


def _ends(curve: Sequence[tuple[int, float]]) -> str:
    return f"{curve[0][1]:.1%} -> {curve[-1][1]:.1%} (best {max(value for _, value in curve):.1%})"


def _write(rows: Sequence[tuple[Case, list[tuple[int, float]], float]], options: argparse.Namespace) -> None:
    """The table and the picture."""
    RESULTS.mkdir(exist_ok=True)
    lines = [
        "# Learning curves of every method on the demonstration's task",
        "",
        f"`benchmarks/learning_cpu.py`, {time.strftime('%Y-%m-%d')}: one model after SFT, {options.steps} steps of 32 prompts"
        f" (8 responses each), seed {options.seed}, learning rate {LEARNING_RATE:g} falling to zero, 300 held-out sums"
        " answered greedily. The same learning rate for all: this shows that each method learns, not which one is best.",
        "A case with fewer steps says so in the script: dynamic sampling ends where hardly any prompt is left to learn from.",
        "",
        "![curves](learning_cpu.svg)",
        "",
        "| method | keys beyond the demonstration's GRPO | start | end | best | CPU s |",
        "|---|---|---|---|---|---|",
    ]
    for case, curve, seconds in rows:
        keys = "<br>".join(f"`{key}={value}`" for key, value in case.keys.items())
        ends = f"{curve[0][1]:.1%} | {curve[-1][1]:.1%} | {max(value for _, value in curve):.1%}"
        lines.append(f"| {case.name} | {keys} | {ends} | {seconds:.0f} |")
    (RESULTS / "learning_cpu.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    _draw(rows)


def _draw(rows: Sequence[tuple[Case, list[tuple[int, float]], float]]) -> None:
    from matplotlib.figure import Figure

    families = list(dict.fromkeys(case.family for case, _, _ in rows))
    figure = Figure(figsize=(13, 5), layout="constrained")
    panels = figure.subplots(1, len(families), sharey=True, squeeze=False)[0]
    styles = ("-", "--", ":", "-.")
    for family, axes in zip(families, panels, strict=True):
        drawn = [(case, curve) for case, curve, _ in rows if case.family == family]
        for number, (case, curve) in enumerate(drawn):
            steps, values = zip(*curve, strict=True)
            style = styles[math.floor(number / 10) % len(styles)]
            axes.plot(steps, [100 * value for value in values], style, label=case.name, linewidth=1.4)
        axes.set_title({"estimator": "advantages", "loss": "policy losses", "recipe": "recipes"}[family])
        axes.set_xlabel("step")
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize=7, loc="lower right")
    panels[0].set_ylabel("held-out accuracy, %")
    figure.savefig(RESULTS / "learning_cpu.svg")


if __name__ == "__main__":
    sys.exit(main())
