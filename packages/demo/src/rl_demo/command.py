"""``rl demo``: data, a model from nothing, SFT until it is mediocre, GRPO from there, and what came of it."""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from rl_core.entry_point import INTERRUPTED
from rl_core.errors import ConfigError, PluginNotFoundError
from rl_core.plugins import get_registry
from rl_core.plugins.hints import DEFAULT_BACKEND

from rl_demo.files import DataFiles, write_data
from rl_demo.model import save_model
from rl_demo.problems import split_problems
from rl_demo.progress import ACCURACY, SHOWS_WORK
from rl_demo.quiet import one_quiet_thread
from rl_demo.stages import (
    GRPO_LR,
    GRPO_STEPS,
    PROMPTS_PER_STEP,
    RESPONSES_PER_PROMPT,
    SFT_STEPS,
    commands_text,
    grpo_arguments,
    sft_arguments,
    sft_model,
)

_LARGEST_SEED: Final = 2**32 - 1
_MOST_STEPS: Final = 100_000
_INSTALL: Final = "pip install rl-demo rl-backend-fsdp rl-rollout-hf"


@dataclass(frozen=True, slots=True)
class Demo:
    """What was asked for.

    Attributes:
        folder: gets everything.
        seed: of problems, weights, and both stages.
        sft_steps: of the warm start.
        steps: of GRPO.
        learning_rate: of GRPO.
    """

    folder: Path
    seed: int
    sft_steps: int = SFT_STEPS
    steps: int = GRPO_STEPS
    learning_rate: float = GRPO_LR


@dataclass(slots=True)
class Stopwatch:
    """Seconds by stage, in the order of the stages."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a block."""
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started


def main(argv: Sequence[str]) -> int:
    """Run ``rl demo`` with its arguments; returns the exit status.

    Raises:
        ConfigError: the folder cannot be used.
        PluginNotFoundError: an engine is not installed.
    """
    demo = parse(argv)
    require_engines()
    try:
        demo.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"the folder {demo.folder} cannot be made: {error.strerror}. Name another one: --folder DIR"
        raise ConfigError(msg) from error
    try:
        run_demo(demo)
    except KeyboardInterrupt:
        text = f"interrupted. What there is stays in {demo.folder}; the next {_program()} demo begins at the beginning."
        print(text, file=sys.stderr)  # noqa: T201 - where the end of a command is told
        return INTERRUPTED
    return 0


def parse(argv: Sequence[str]) -> Demo:
    """The arguments.

    Raises:
        ConfigError: the folder has something in it already.
    """
    parser = argparse.ArgumentParser(
        prog="rl demo",
        description="A tiny model learns to add two numbers: by SFT until it is mediocre, by GRPO from there. "
        "Needs no GPU, no network, and a few minutes.",
    )
    parser.add_argument(
        "--seed", type=_whole(0, _LARGEST_SEED), default=1, metavar="N", help="another run (default: 1)"
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where everything goes (default: outputs/demo/...)")
    parser.add_argument(
        "--steps", type=_whole(1, _MOST_STEPS), default=GRPO_STEPS, metavar="N", help=f"of GRPO (default: {GRPO_STEPS})"
    )
    parser.add_argument(
        "--lr",
        type=_rate,
        default=GRPO_LR,
        metavar="RATE",
        help=f"learning rate of GRPO (default: {GRPO_LR:g}); 0 learns nothing, as a control",
    )
    parser.add_argument(
        "--sft-steps",
        type=_whole(1, _MOST_STEPS),
        default=SFT_STEPS,
        metavar="N",
        help=f"of the warm start (default: {SFT_STEPS})",
    )
    options = parser.parse_args(list(argv))
    folder = options.folder
    if folder is None:
        folder = Path("outputs") / "demo" / f"{datetime.now():%Y%m%d-%H%M%S}-seed{options.seed}"
    folder = folder.expanduser()
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        msg = f"--folder is {folder}, which is not an empty folder; name one that is empty or not there yet."
        raise ConfigError(msg)
    return Demo(folder, options.seed, options.sft_steps, options.steps, options.lr)


def require_engines() -> None:
    """Both engines have to be there before anything is written.

    Raises:
        PluginNotFoundError: one is not.
    """
    registry = get_registry()
    for kind, name in (("backend", DEFAULT_BACKEND), ("rollout", "hf")):
        try:
            registry.record(kind, name)
        except PluginNotFoundError as error:
            msg = f"rl demo needs the {kind} {name!r}, which is not installed. {_INSTALL}"
            raise PluginNotFoundError(msg) from error


def run_demo(demo: Demo) -> None:
    """All stages, then the report."""
    from rl_core.trainer.main_ppo import main as train  # noqa: PLC0415 - heavy, like all below
    from rl_core.trainer.sft import main as sft  # noqa: PLC0415

    clock, folder = Stopwatch(), demo.folder.absolute()  # so that the commands work from anywhere
    _say(f"rl demo, seed {demo.seed}; everything goes to {demo.folder}")
    with one_quiet_thread():
        with clock.stage("data and model"):
            split = split_problems(demo.seed)
            data = write_data(folder / "data", split, demo.seed)
            weights = save_model(folder / "model", demo.seed)
        _say(
            f"\n1/3  Sums below 100 of two numbers of two digits: {len(split.sft):,} for SFT, {len(split.rl):,} for GRPO,"
            f"\n     {len(split.held_out)} held out. A Llama of {weights:,} random weights."
        )
        first, second = _stages(demo, data, folder / "sft", folder / "grpo")
        again = _stages(demo, data, folder / "sft-again", folder / "grpo-again")
        script = commands_text(*again, export=sft_model(folder / "sft-again"))
        (folder / "commands.sh").write_text(script, encoding="utf-8")

        _say(
            "\n2/3  SFT on the answers of two teachers. The one that is asked most forgets the"
            "\n     carry: 47+38= is 75. The other shows the work: 7+8=15 so 85."
        )
        with clock.stage("SFT"):
            sft(first)

        _say(
            f"\n3/3  GRPO: {RESPONSES_PER_PROMPT} answers to each of {PROMPTS_PER_STEP} sums a step, reward 1 for the right"
            "\n     number, otherwise 0. Nothing tells the model which way to answer."
        )
        with clock.stage("GRPO"):
            train(second)
    _report(demo, clock)


def _stages(demo: Demo, data: DataFiles, sft_run: Path, grpo_run: Path) -> tuple[list[str], list[str]]:
    """Arguments of both stages with these run folders; GRPO starts from the demonstration's own SFT, wherever it writes."""
    folder = demo.folder.absolute()
    return (
        sft_arguments(folder / "model", data, sft_run, seed=demo.seed, steps=demo.sft_steps),
        grpo_arguments(
            sft_model(folder / "sft"),
            data,
            grpo_run,
            seed=demo.seed,
            steps=demo.steps,
            learning_rate=demo.learning_rate,
        ),
    )


def _report(demo: Demo, clock: Stopwatch) -> None:
    from rl_report import load_run, terminal_report, write_html  # noqa: PLC0415 - heavy

    grpo_run = demo.folder / "grpo"
    run = load_run(grpo_run)
    with clock.stage("report"):
        page = write_html(run)
    _say("")
    terminal_report(run)
    accuracy, careful = run.series(ACCURACY), run.series(SHOWS_WORK)
    times = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in clock.seconds.items())
    _say(
        f"\nHeld-out accuracy: {accuracy.first:.1%} after SFT, {accuracy.last:.1%} after {demo.steps} steps of GRPO."
        f"\nSampled answers that show their work: {careful.first:.0%} in its first step, {careful.last:.0%} in its last."
        "\nSFT showed two ways of adding; GRPO is to find the one that pays."
        f"\nTime: {sum(clock.seconds.values()):.0f} s: {times}."
        f"\nRun folder: {grpo_run}\nReport:     {page}"
        "\n\nWhat to try next"
        f"\n  {_program()} demo --lr 0: the control, which learns nothing and so may not gain"
        f"\n  {demo.folder / 'commands.sh'}: both stages as commands, for run folders of their own; change a key, run one"
        '\n  your own model, data and reward: "First real run" in the README'
    )


def _program() -> str:
    """How to type ``rl`` here: by its path where the environment is not activated."""
    if shutil.which("rl"):
        return "rl"
    return os.path.relpath(Path(sys.executable).parent / "rl")


def _say(text: str) -> None:
    # Flushed, so that it stands above what the stages print through streams of their own.
    print(text, flush=True)  # noqa: T201 - what the command is for


def _whole(least: int, most: int) -> Callable[[str], int]:
    """A parser of whole numbers from ``least`` to ``most``."""

    def parsed(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            msg = f"must be a whole number from {least} to {most}, found {text!r}"
            raise argparse.ArgumentTypeError(msg)
        return number

    return parsed


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 <= rate < math.inf:
        msg = f"must be a number from 0 on, found {text!r}"
        raise argparse.ArgumentTypeError(msg)
    return rate
