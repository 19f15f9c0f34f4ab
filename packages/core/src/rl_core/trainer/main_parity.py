"""``rl parity [CHECKPOINT] KEY=VALUE ...``: do generator and trainer agree about the same tokens, and if not, why?"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from rl_core.config.compose import compose
from rl_core.config.overrides import add_config_options
from rl_core.entry_point import report_errors
from rl_core.errors import ConfigError
from rl_core.plugins import get_registry

if TYPE_CHECKING:
    from rl_core.config import Config, PPOTrainerConfig
    from rl_core.plugins import Registry
    from rl_core.trainer.checkpoint import Checkpoint
    from rl_core.trainer.evaluation.parity import ParityResult

FAILED: Final = 1
"""Exit status when the gap is above its limit."""
_USAGE: Final = "rl parity [CHECKPOINT] [--prompts N] [--tokens N] [--limit X] [KEY=VALUE ...]"
_DESCRIPTION: Final = """Hand the weights to the generator once, sample, score the same tokens with the
training engine, and compare. Nothing is trained.

  CHECKPOINT   a Hugging Face folder, a run folder (its newest complete checkpoint), or a
               folder global_step_N of one; without it, the model of the configuration
  KEY=VALUE    overrides as for 'rl train': the same arguments check that run's engines"""
_EPILOG: Final = """Prompts come from data.train_files where that is given, else a few short texts are
built in. Exit status: 0 the gap is within its limit, 1 it is not, 2 an error."""
_MEASURE: Final = (
    "actor_rollout_ref.rollout.calculate_log_probs=true",
    "actor_rollout_ref.actor.calculate_entropy=true",
    "actor_rollout_ref.actor.calculate_sum_pi_squared=true",
)
"""What tells a temperature from other causes; overrides of the command line stand above these."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        msg = f"{message}.\n  {self.format_usage().strip()}"
        raise ConfigError(msg)


def main(argv: Sequence[str]) -> int:
    """Check as ``argv`` says; expected errors are raised as ``RlError``."""
    options = _parser().parse_intermixed_args(list(argv))
    registry = get_registry()
    config, checkpoint = _configured(options, registry)
    # Imported late: what is wrong with the arguments is said before torch is loaded.
    from rl_core.trainer.evaluation.parity import ParityRun, file_prompts, own_prompts  # noqa: PLC0415
    from rl_core.trainer.ppo.parity import largest_gap  # noqa: PLC0415
    from rl_core.trainer.task_runner import load_tokenizer  # noqa: PLC0415

    tree = config.tree
    tokenizer = load_tokenizer(tree, registry)
    is_from_file = "data.train_files" in config.given
    items = (file_prompts if is_from_file else own_prompts)(tree, tokenizer, options.prompts)
    limit, key = (options.limit, "--limit") if options.limit else largest_gap(tree.trainer.parity, is_first=True)
    for line in (*(f"note: {notice}" for notice in config.notices), *_headline(tree, is_from_file=is_from_file)):
        print(line)  # noqa: T201 - loading may take long: this says of what
    started = time.perf_counter()
    result = ParityRun(tree, checkpoint, tokenizer, registry).run(items, options.tokens)
    _print_result(result, time.perf_counter() - started)
    is_within = limit is None or result.gap <= limit
    verdict = "pass" if is_within else "FAIL"
    print(f"\n{verdict}: mean gap {result.gap:.3g} nats, limit {limit:g} ({key}).")  # noqa: T201 - the result
    return 0 if is_within else FAILED


def _configured(options: argparse.Namespace, registry: Registry) -> tuple[Config, Checkpoint | None]:
    """The configuration to check, and whose weights it has; None for those of ``model.path``."""
    from rl_core.trainer.evaluation.configure import compose_values, require_sound  # noqa: PLC0415 - see ``main``
    from rl_core.trainer.evaluation.source import find_source  # noqa: PLC0415 - see ``main``

    models = [word for word in options.overrides if "=" not in word and not word.startswith("~")]
    overrides = [word for word in options.overrides if word not in models]
    # A training file of thousands of rows is not tokenised for a few prompts.
    overrides = [*_MEASURE, f"data.train_max_samples={options.prompts}", *overrides]
    if len(models) > 1:
        msg = f"rl parity takes one CHECKPOINT; it got {' '.join(models)}.\n  usage: {_USAGE}"
        raise ConfigError(msg)
    checkpoint = None
    if models:
        if options.config_name or options.config_path:
            msg = f"CHECKPOINT is {models[0]} and a configuration file is named too. Give one of them."
            raise ConfigError(msg)
        source = find_source(models[0])
        checkpoint = source.checkpoint
        config = compose_values(source.values, overrides, registry)
    else:
        config = compose(
            overrides,
            config_name=options.config_name,
            config_path=options.config_path,
            config_dir=options.config_dir,
            registry=registry,
        )
    require_sound(config, registry)
    return config, checkpoint


def _headline(tree: PPOTrainerConfig, *, is_from_file: bool) -> list[str]:
    part = tree.actor_rollout_ref
    rollout = part.rollout
    filters = "".join(
        f", {name} {value:g}"
        for name, value, is_on in (
            ("top_p", rollout.top_p, rollout.top_p < 1),
            ("top_k", rollout.top_k, rollout.top_k > 0),
        )
        if is_on
    )
    return [
        f"model      {part.model.path}",
        f"engines    {part.actor.strategy} trains, {rollout.name} samples at temperature {rollout.temperature:g}{filters}",
        f"prompts    {tree.data.train_files if is_from_file else 'built in'}",
    ]


def _print_result(result: ParityResult, seconds: float) -> None:
    lines: list[Any] = [f"responses  {result.num_responses} in {seconds:.1f} s, starting the engines included"]
    if result.errors:
        lines.append(f"note: {len(result.errors)} responses did not come; the first reason: {result.errors[0]}")
    lines += ["", *result.report.table(result.again), "", *result.report.conclusion()]
    print("\n".join(lines))  # noqa: T201 - the result


def _parser() -> _Parser:
    parser = _Parser(
        prog="rl parity",
        usage=_USAGE,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_config_options(parser)
    parser.add_argument("--prompts", type=_positive, default=16, metavar="N", help="prompts, one response each (16)")
    parser.add_argument("--tokens", type=_positive, default=64, metavar="N", help="longest response (64)")
    parser.add_argument(
        "--limit",
        type=_nats,
        metavar="X",
        help="largest mean gap in nats (trainer.parity.max_logprob_gap, or first_sync_tolerance where that is less)",
    )
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        msg = f"{text!r} is no whole number from 1 on"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def _nats(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        msg = f"{text!r} is no number above 0"
        raise argparse.ArgumentTypeError(msg)
    return value


if __name__ == "__main__":
    sys.exit(report_errors(main, sys.argv[1:]))
