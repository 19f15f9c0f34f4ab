"""``rl reward try --name N --data FILE``: what a reward gives to the rows of a file, before anything is trained with it.

Without ``--response`` and ``--responses`` the reference of each row is scored, which ought to give full marks: its
``extra_info.answer`` (or ``solution``), or else the ground truth written as ``#### x``, as ``Answer: x`` and in answer tags.
Functions run as they do in training, in a process with a deadline.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rl_core.cli.text import format_table, require_choice
from rl_core.contracts.reward import RewardResult
from rl_core.data.files import read_rows
from rl_core.errors import ConfigError, DataError
from rl_core.plugins import get_registry
from rl_core.scoring.call import read_call
from rl_core.scoring.function import FileFunction, FunctionsBySource
from rl_core.scoring.pool import ScorePool

REFERENCES: Final = ("answer", "solution", "reference")
"""Entries of ``extra_info`` that hold a worked solution."""
_MAX_CELL: Final = 60


@dataclass(frozen=True, slots=True)
class Trial:
    """One scored row.

    Attributes:
        row: its place in the file.
        data_source: of the row.
        result: of the reward function.
        seconds: from asking to answer; the first includes the start of the process.
    """

    row: int
    data_source: str
    result: RewardResult
    seconds: float


def main(argv: Sequence[str]) -> int:
    """Run ``rl reward`` with its arguments; 0 if every row got a score, 1 otherwise."""
    arguments = list(argv)
    if arguments and not arguments[0].startswith("-"):
        require_choice("rl reward", arguments[0], ("try",))
    options = _parser().parse_args(arguments)
    rows = read_rows(options.data)[options.skip :]
    rows = rows[: options.limit] if options.limit is not None else rows
    responses = _responses(rows, options)
    reward_kwargs = dict(options.set)
    functions: Any = FunctionsBySource(get_registry(), reward_kwargs=reward_kwargs)
    if options.path is not None:
        functions = FileFunction(options.path, options.name or "compute_score", reward_kwargs)
    trials = []
    pool = ScorePool(num_workers=1, timeout_s=options.timeout, memory_mb=options.memory_limit_mb)
    try:
        for place, (row, response) in enumerate(zip(rows, responses, strict=True), options.skip):
            function = (
                functions if options.path is not None else functions.for_source(_source(row, place, options.name))
            )
            trials.append(_try(pool, function, place, row, response))
    finally:
        pool.close()
    print(_report(trials, show_all=options.all))
    return int(any(trial.result.score is None for trial in trials))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rl reward", description="Try a reward on the rows of a file.")
    commands = parser.add_subparsers(required=True, metavar="try")
    trial = commands.add_parser("try", help="score the references, or given responses, of a data file")
    trial.add_argument("--data", required=True, metavar="FILE", help="parquet, JSON or JSON lines, as for training")
    trial.add_argument(
        "--name", help="an installed reward, or the function in --path; default: by each row's data_source"
    )
    trial.add_argument("--path", metavar="FILE", help="Python file with a reward function of your own")
    trial.add_argument(
        "--response", action="append", metavar="TEXT", help="score this for every row; several: one a row"
    )
    trial.add_argument(
        "--responses", metavar="FILE", help="JSON lines, each a text or an object with 'response' or 'output'"
    )
    trial.add_argument(
        "--set", action="append", type=_setting, default=[], metavar="KEY=VALUE", help="argument of the reward"
    )
    trial.add_argument("--skip", type=int, default=0, metavar="N", help="leave out the first N rows")
    trial.add_argument("--limit", type=int, metavar="N", help="score N rows at most")
    trial.add_argument("--timeout", type=float, default=60.0, metavar="S", help="deadline of one row (60)")
    trial.add_argument("--memory-limit-mb", type=int, default=4096, metavar="M", help="memory of the process (4096)")
    trial.add_argument("--all", action="store_true", help="print every row; default: at most 20, failures first")
    return parser


def _setting(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        msg = f"{text!r} is not KEY=VALUE"
        raise argparse.ArgumentTypeError(msg)
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _source(row: Mapping[str, Any], place: int, name: str | None) -> str:
    source = name if name is not None else row.get("data_source")
    if not isinstance(source, str) or not source:
        msg = f"row {place} has data_source {source!r}; name the reward with --name"
        raise DataError(msg)
    return source


def _responses(rows: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> list[str]:
    """One response for each row.

    Raises:
        ConfigError: both ways to give them are used, or their number is not that of the rows.
    """
    if options.response and options.responses:
        msg = "--response and --responses are both given; take one of them"
        raise ConfigError(msg)
    if options.responses:
        given = list(_read_responses(options.responses))
    elif options.response and len(options.response) == 1:
        given = options.response * len(rows)
    elif options.response:
        given = list(options.response)
    else:
        return [reference(row) for row in rows]
    if len(given) != len(rows):
        msg = f"{len(given)} responses for {len(rows)} rows; give one for each, or choose rows with --skip and --limit"
        raise ConfigError(msg)
    return given


def _read_responses(path: str) -> Iterator[str]:
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except ValueError as error:
                msg = f"{path}:{number} is no JSON: {error}"
                raise DataError(msg) from error
            if isinstance(value, dict):
                value = value.get("response", value.get("output"))
            if not isinstance(value, str):
                msg = f"{path}:{number} holds neither a text nor an object with a text 'response' or 'output'"
                raise DataError(msg)
            yield value


def reference(row: Mapping[str, Any]) -> str:
    """A response that ought to be right: the row's worked solution, or its ground truth in every usual form."""
    extra = row.get("extra_info") or {}
    written = next((extra[key] for key in REFERENCES if isinstance(extra.get(key), str)), None)
    if written is not None:
        return str(written)
    truth = (row.get("reward_model") or {}).get("ground_truth")
    while isinstance(truth, Mapping | list) and truth:
        truth = truth[0] if isinstance(truth, list) else truth.get("target")
    return f"#### {truth}\nAnswer: {truth}\n<answer>{truth}</answer>"


def _try(pool: ScorePool, function: Any, place: int, row: Mapping[str, Any], response: str) -> Trial:
    call = read_call(function.plain(), function.reward_kwargs, f"reward of row {place}")
    source = row.get("data_source")
    offered = {
        "data_source": source,
        "solution_str": response,
        "ground_truth": (row.get("reward_model") or {}).get("ground_truth"),
        "extra_info": row.get("extra_info"),
        "prompt_str": _prompt_text(row.get("prompt")),
        "raw_prompt": row.get("prompt"),
        "response_ids": None,
        "response_length": len(response),
        "uid": str(place),
        "num_turns": 1,
    }
    arguments = {argument: offered[name] for argument, name in call.names.items()}
    if call.is_batched:
        arguments = {argument: [value] for argument, value in arguments.items()}
    started = time.perf_counter()
    (job,) = pool.submit([(pool.add_function(function), arguments, int(call.is_batched))])
    (result,) = job.future.result()
    return Trial(place, str(source), result, time.perf_counter() - started)


def _prompt_text(prompt: Any) -> str:
    if isinstance(prompt, str) or prompt is None:
        return prompt or ""
    return "\n".join(str(message.get("content", "")) for message in prompt)


def _report(trials: Sequence[Trial], *, show_all: bool) -> str:
    def rank(trial: Trial) -> tuple[int, float]:
        score = trial.result.score
        return (0, 0.0) if score is None else (1, score)

    shown = list(trials) if show_all else sorted(trials, key=rank)[:20]
    rows = [
        [str(trial.row), _cut(trial.data_source, 30), _score(trial.result), f"{trial.seconds:.3f}", _note(trial.result)]
        for trial in shown
    ]
    scores = [trial.result.score for trial in trials if trial.result.score is not None]
    mean = f"{sum(scores) / len(scores):.4f}" if scores else "none"
    lines = [format_table(rows, ["ROW", "DATA SOURCE", "SCORE", "SECONDS", "ERROR, OR PARTS"])]
    if len(shown) < len(trials):
        lines.append(f"... and {len(trials) - len(shown)} rows more, which score no less; --all shows them")
    lines.append(
        f"{len(trials)} rows: mean score {mean}, {sum(score == 1.0 for score in scores)} with 1.0, "
        f"{sum(score == 0.0 for score in scores)} with 0.0, {len(trials) - len(scores)} missing; "
        f"slowest {max((trial.seconds for trial in trials), default=0.0):.3f} s"
    )
    return "\n".join(lines)


def _score(result: RewardResult) -> str:
    return "missing" if result.score is None else f"{result.score:g}"


def _note(result: RewardResult) -> str:
    if result.error is not None:
        return _cut(" ".join(result.error.split()), 4 * _MAX_CELL)
    return _cut(", ".join(f"{key}={value}" for key, value in result.extra.items()), _MAX_CELL)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
