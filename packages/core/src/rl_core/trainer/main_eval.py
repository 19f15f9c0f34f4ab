"""``rl eval CHECKPOINT FILE`` (also ``python -m rl_core.trainer.main_eval``): score a checkpoint on a file with pass@k."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from rl_core.entry_point import report_errors
from rl_core.errors import ConfigError
from rl_core.plugins import get_registry
from rl_core.trainer.json_lines import unused_name

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig

_USAGE = "rl eval CHECKPOINT FILE [--n N] [--k K,K] [--pass-from X] [--out FILE] [KEY=VALUE ...]"
_DESCRIPTION = """Answer the prompts of a file with a checkpoint's weights and score the answers.

  CHECKPOINT   a run folder (its newest complete checkpoint), a folder global_step_N of
               one, or a Hugging Face folder
  FILE         the rows: parquet, json or jsonl, as data.val_files
  KEY=VALUE    overrides in Hydra's grammar, on top of the run's configuration; with a
               Hugging Face folder actor_rollout_ref.rollout.name is needed"""
_EPILOG = """One answer is greedy; several are drawn at temperature 1, unless
actor_rollout_ref.rollout.val_kwargs.* says else. A long file in parts: data.val_batch_size=64."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        msg = f"{message}.\n  {self.format_usage().strip()}"
        raise ConfigError(msg)


def main(argv: Sequence[str]) -> int:
    """Evaluate as ``argv`` says; expected errors are raised as ``RlError``."""
    options = _parser().parse_intermixed_args(list(argv))
    if len(options.words) < 2:
        msg = (
            f"rl eval needs a CHECKPOINT and a FILE; it got {' '.join(options.words) or 'neither'}.\n  usage: {_USAGE}"
        )
        raise ConfigError(msg)
    checkpoint, file, *overrides = options.words
    # Everything below is imported late: what is wrong with the arguments is said before torch is loaded.
    from rl_core.trainer.evaluation.configure import configure, notes  # noqa: PLC0415
    from rl_core.trainer.evaluation.source import find_source  # noqa: PLC0415

    registry = get_registry()
    source = find_source(checkpoint)
    config = configure(source, file, options.n, overrides, registry)

    from rl_core.trainer.evaluation.report import answer_records, tables  # noqa: PLC0415
    from rl_core.trainer.evaluation.run import Evaluation, require_answers  # noqa: PLC0415
    from rl_core.trainer.evaluation.scores import pass_sizes, read_answers, score_sources  # noqa: PLC0415
    from rl_core.trainer.ppo.dumps import write_json_lines  # noqa: PLC0415
    from rl_core.trainer.task_runner import load_tokenizer  # noqa: PLC0415

    num_answers = config.tree.actor_rollout_ref.rollout.val_kwargs.n
    sizes = pass_sizes(options.k, num_answers)
    out = None if options.out is None else _writable(options.out)
    for line in notes(config, source):
        print(f"note: {line}")  # noqa: T201 - what differs from what was asked stands above the result
    tokenizer = load_tokenizer(config.tree, registry)
    evaluation = Evaluation(config.tree, source.checkpoint, tokenizer, registry)
    for line in _headline(config.tree, source.name, len(evaluation.dataset), evaluation.dataset.num_filtered):
        print(line)  # noqa: T201 - generation may take long: this says what of
    started = time.perf_counter()
    answers = evaluation.run()
    seconds = time.perf_counter() - started
    read = read_answers(answers, num_answers, options.pass_from)
    print(f"\n{tables(score_sources(read, sizes), options.pass_from)}")  # noqa: T201 - the result
    print(f"{len(read)} answers in {seconds:.1f} s, starting the engines included.")  # noqa: T201
    if out is not None:
        step = None if source.checkpoint is None else source.checkpoint.step
        write_json_lines(out, answer_records(answers, read, num_answers, step, tokenizer))
        print(f"every answer: {out}")  # noqa: T201
    # What there is has been shown and written by now; it is no success where too much is missing.
    require_answers(answers, config.tree)
    return 0


def _headline(tree: PPOTrainerConfig, name: str, num_prompts: int, num_filtered: int) -> list[str]:
    from rl_core.trainer.ppo.validation import validation_sampling  # noqa: PLC0415 - loads torch

    sampling = validation_sampling(tree)
    n = tree.actor_rollout_ref.rollout.val_kwargs.n
    drawn = f"temperature {sampling.temperature:g}" if sampling.temperature else "greedy"
    lines = [
        f"checkpoint  {name}",
        f"file        {tree.data.val_files}",
        f"answers     {num_prompts} prompts x {n}, {drawn}, at most {sampling.max_tokens} tokens",
    ]
    if num_filtered:
        lines.append(f"note: {num_filtered} more prompts are longer than data.max_prompt_length and left out")
    return lines


def _writable(text: str) -> Path:
    """Where answers go; found out before anything is generated.

    Raises:
        ConfigError: there is no such folder, or it cannot be written to.
    """
    path = Path(text).expanduser()
    if path.is_dir():
        msg = f"--out is {text}, a folder. Name a file in it, such as {path / 'results.jsonl'}."
        raise ConfigError(msg)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        probe = unused_name(path)
        probe.touch(exist_ok=False)
    except OSError as error:
        msg = f"--out is {text}, which cannot be written: {error}"
        raise ConfigError(msg) from error
    probe.unlink()
    return path


def _parser() -> _Parser:
    parser = _Parser(
        prog="rl eval",
        usage=_USAGE,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # One list: argparse cannot require two words and take further ones between the options.
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--n", type=_positive, metavar="N", help="answers to each prompt (default: val_kwargs.n, 1)")
    parser.add_argument("--k", metavar="K,K", help="every k of pass@k (default: 1, 2, 4 ... and N)")
    parser.add_argument(
        "--pass-from",
        type=float,
        default=1.0,
        metavar="X",
        help="an answer is right from this 'acc' of its reward on, or this score where it has none (default: 1)",
    )
    parser.add_argument("--out", metavar="FILE", help="write every answer with its score's components as JSON lines")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        msg = f"{text!r} is no whole number from 1 on"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


if __name__ == "__main__":
    sys.exit(report_errors(main, sys.argv[1:]))
