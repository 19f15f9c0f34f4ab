"""An evaluation for people, as tables of 80 columns, and for programs, as JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from rl_core.trainer.ppo.dumps import rollout_records

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rl_core.trainer.evaluation.scores import Answer, SourceScores
    from rl_core.trainer.ppo.validation import Answers

WIDTH: Final = 80
_SIZES_A_TABLE: Final = 6
_RIGHT: Final = "pass@k: one of k answers is right, by the reward's acc, else its score, >= {:g}."
_LEGEND: Final = (
    "score: mean over prompts. tokens: mean length. cut: ended at the length limit.",
    "failed: rollouts without an answer. missing: answers without a score. Neither",
    "counts as 0: such answers are left out.",
)


def tables(scores: Sequence[SourceScores], pass_from: float) -> str:
    """What is shown: sizes, score and losses of each data source, then pass@k."""
    from rich.console import Console  # noqa: PLC0415 - only what is shown needs it

    console = Console(width=WIDTH, highlight=False, markup=False, force_terminal=False, color_system=None)
    with console.capture() as captured:
        console.print(_overview(scores), "")
        sizes = list(scores[0].passes)
        for start in range(0, len(sizes), _SIZES_A_TABLE):
            console.print(_passes(scores, sizes[start : start + _SIZES_A_TABLE]), "")
        for line in (*_left_out(scores), _RIGHT.format(pass_from), *_LEGEND):
            console.print(line)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> RenderableType:
    from rich import box  # noqa: PLC0415 - only what is shown needs it
    from rich.table import Table  # noqa: PLC0415 - only what is shown needs it

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column(header[0], overflow="fold")
    for name in header[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _overview(scores: Sequence[SourceScores]) -> RenderableType:
    header = ("data source", "prompts", "answers", "score", "tokens", "cut", "failed", "missing")
    rows = [
        (
            item.data_source,
            f"{item.num_prompts}",
            f"{item.num_answers}",
            _number(item.score, ".3f"),
            _number(item.num_tokens, ".1f"),
            _number(item.cut_share, ".0%"),
            f"{item.num_failed}",
            f"{item.num_missing}",
        )
        for item in scores
    ]
    return _table(header, rows)


def _passes(scores: Sequence[SourceScores], sizes: Sequence[int]) -> RenderableType:
    rows = [(item.data_source, *(_number(item.passes[k].value, ".3f") for k in sizes)) for item in scores]
    return _table(("data source", *(f"pass@{k}" for k in sizes)), rows)


def _left_out(scores: Sequence[SourceScores]) -> Iterator[str]:
    for item in scores:
        for k, passed in item.passes.items():
            if passed.num_left_out:
                yield (
                    f"{item.data_source}, pass@{k}: {passed.num_left_out} of {item.num_prompts} prompts have fewer than "
                    f"{k} scored answers and are left out."
                )


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def answer_records(
    answers: Answers, read: Sequence[Answer], num_answers: int, step: int | None, tokenizer: Any
) -> Iterator[dict[str, Any]]:
    """One record for each answer that was asked for, also where none came.

    Each has ``prompt`` and ``sample`` (numbers), what ``rollout_records`` writes of a row, the components of the reward among
    it, and ``num_tokens`` and ``passed``; what is not there is null.
    """
    came = rollout_records(step, answers.batch, answers.results, tokenizer)
    by_row = dict(zip((int(row) for row in answers.rows), came, strict=True))
    columns, prompts = answers.prompts.non_tensor_batch, answers.prompts.batch["prompts"].unbind()
    for row, answer in enumerate(read):
        record = by_row.get(row) or {
            "input": tokenizer.decode(prompts[row].tolist()),
            "output": None,
            "gts": (columns["reward_model"][row] or {}).get("ground_truth"),
            "score": None,
            "step": step,
            "uid": columns["uid"][row],
            "data_source": columns["data_source"][row],
            "finish_reason": None,
            "error": answers.errors[row],
        }
        place = {"prompt": answer.prompt, "sample": row % num_answers}
        yield place | record | {"num_tokens": answer.num_tokens, "passed": answer.passed}
