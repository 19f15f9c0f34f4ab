"""The text that ``rl data show`` prints: some rows, a summary of all, and what training would refuse."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from rl_core.cli.paint import OFF, ON, Paint, cleaned
from rl_core.cli.text import WIDTH, format_table
from rl_core.data.survey import CONVERSATIONS, PAIRS, PROMPTS
from rl_core.errors import PluginNotFoundError
from rl_core.plugins.records import NEEDS_GROUND_TRUTH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rl_core.data.survey import SurveyedRow
    from rl_core.plugins import Record, Registry

_LINES_AT_MOST: Final = 24
_ERRORS_AT_MOST: Final = 10
_BINS: Final = 8
_BAR: Final = 40


@dataclass(frozen=True)
class Report:
    """What was found.

    Attributes:
        kind: of the rows.
        files: as given.
        rows: all of them.
        data: the ``data`` section.
        tokenizer: None where none is known.
        rewards: finds installed rewards; None where a function or a model of the run's own scores all rows.
        chosen: the installed reward of every row; None where each row's data source chooses.
    """

    kind: str
    files: Sequence[str]
    rows: Sequence[SurveyedRow]
    data: Any
    tokenizer: Any | None
    rewards: Registry | None
    chosen: str | None = None

    @property
    def limit(self) -> tuple[str, int]:
        """Key and value of the longest that a row may be."""
        if self.kind == PROMPTS:
            return "data.max_prompt_length", self.data.max_prompt_length
        return "data.max_length", self.data.max_length

    def refusals(self) -> list[str]:
        """Why training would not start with these rows, one line each."""
        lines = [f"{row.place.file}: {row.error}" for row in self.rows if row.error is not None]
        if self.rows and all(row.left_out is not None for row in self.rows):
            lines.append(f"every row is left out, the first because: {self.rows[0].left_out}")
        for source, first in self.unrewarded().items():
            close = get_close_matches(str(source), self._known(), n=3)
            meant = f" (did you mean {' or '.join(close)}?)" if close else ""
            what = "no data_source" if source is None else f"data_source {source!r}, for which no reward is installed"
            lines.append(
                f"{first.place.file}: row {first.place.number} has {what}{meant}: give "
                "custom_reward_function.path=FILE, or install a package that scores it"
            )
        for name, unanswered in self.without_truth().items():
            lines.append(
                f"{unanswered[0].place.file}: row {unanswered[0].place.number} has no ground truth, with which the reward "
                f"{name!r} compares ({len(unanswered):,} such rows): put it into the column reward_model, under ground_truth"
            )
        return lines

    def unrewarded(self) -> dict[str | None, SurveyedRow]:
        """Data sources without a reward, and the first row of each."""
        first: dict[str | None, SurveyedRow] = {}
        for row in self.rows:
            if self.rewards is not None and row.error is None and self._reward(row.data_source) is None:
                first.setdefault(row.data_source, row)
        return first

    def without_truth(self) -> dict[str, list[SurveyedRow]]:
        """Rows that lack what their reward compares with, by the name that chooses it."""
        found: dict[str, list[SurveyedRow]] = {}
        for row in self.rows:
            record = self._reward(row.data_source)
            needs_it = record is not None and NEEDS_GROUND_TRUTH in record.capabilities
            if needs_it and row.error is None and not row.has_ground_truth:
                found.setdefault(self.chosen or str(row.data_source), []).append(row)
        return found

    def _reward(self, source: str | None) -> Record | None:
        if self.rewards is None:
            return None
        try:
            return self.rewards.record("reward", self.chosen or (source if isinstance(source, str) else ""))
        except PluginNotFoundError:
            return None

    def _known(self) -> list[str]:
        return [] if self.rewards is None else [claim for one in self.rewards.records("reward") for claim in one.claims]


def report_text(report: Report, paint: Paint, *, shown: int, is_full: bool) -> str:
    """The whole text, at most 80 columns wide.

    Args:
        report: what was found.
        paint: how text is dressed.
        shown: rows that are printed.
        is_full: print long rows to the end.
    """
    shown_rows = report.rows[: shown * (2 if report.kind == PAIRS else 1)]
    blocks = [_row(report, row, paint, is_full) for row in shown_rows]
    blocks += [_summary(report, paint), _histogram(report, paint)]
    refusals = report.refusals()
    if refusals:
        more = len(refusals) - _ERRORS_AT_MOST
        items = [line for text in refusals[:_ERRORS_AT_MOST] for line in _item(text, paint)]
        items += [f"  and {more} more"] if more > 0 else []
        blocks.append("\n".join([paint("red", "training would refuse"), *items]))
    return "\n\n".join(block for block in blocks if block)


def _row(report: Report, row: SurveyedRow, paint: Paint, is_full: bool) -> str:
    facts = [row.data_source] if row.data_source is not None else []
    if row.num_tokens is not None:
        facts.append(f"{row.num_tokens} tokens")
    if row.mask is not None:
        facts.append(f"{sum(row.mask)} learned")
    name = f"row {row.place.number}" + (f" of {row.place.file}" if len(report.files) > 1 else "")
    lines = [_ruled(cleaned(name), cleaned(" · ".join(map(str, facts))), paint)]
    details = [
        ("roles", " > ".join(_runs(row.roles))),
        ("tools", ", ".join(row.tools)),
        ("begins with", _edges(report, row)),
    ]
    lines += [paint("dim", f"{name}: {cleaned(text)}") for name, text in details if text]
    if row.left_out is not None:
        lines.append(paint("red", f"left out: {row.left_out}"))
    if row.is_cut:
        missing = (row.num_tokens or 0) - len(row.ids)
        lines.append(paint("red", f"cut: {missing} tokens dropped (data.truncation={report.data.truncation})"))
    if row.error is not None:
        lines += [paint("red", line) for line in _item(f"refused: {row.error}", paint)]
    body = _body(report, row, paint)
    if not is_full and len(body) > _LINES_AT_MOST:
        hidden = len(body) - _LINES_AT_MOST
        half = _LINES_AT_MOST // 2
        body = [*body[:half], paint("dim", f"  ... {hidden} lines, see --full ..."), *body[-half:]]
    return "\n".join([*lines, *body]).rstrip()


def _body(report: Report, row: SurveyedRow, paint: Paint) -> list[str]:
    if report.tokenizer is not None and row.ids:
        return paint.wrapped(_decoded(report.tokenizer, row), WIDTH, "  ")
    lines: list[str] = []
    for role, text in row.texts:
        lines += [paint("cyan", f"  [{cleaned(role)}]")] if role else []
        lines += paint.wrapped(cleaned(text), WIDTH, "  ")
    return lines


def _decoded(tokenizer: Any, row: SurveyedRow) -> str:
    """The text of the ids, with marks around what is learned."""
    marked = zip(row.ids, row.mask or [False] * len(row.ids), strict=True)
    pieces = []
    for is_learned, group in groupby(marked, key=lambda pair: pair[1]):
        text = cleaned(tokenizer.decode([number for number, _ in group], skip_special_tokens=False))
        pieces.append(f"{ON}{text}{OFF}" if is_learned else text)
    return "".join(pieces)


def _edges(report: Report, row: SurveyedRow) -> str:
    """Whether the row begins with the token that begins a text, and ends with the one that ends it."""
    tokenizer = report.tokenizer
    if tokenizer is None or not row.ids:
        return ""
    bos, eos = getattr(tokenizer, "bos_token_id", None), getattr(tokenizer, "eos_token_id", None)
    begin = (
        "no begin-of-text token" if bos is None or row.ids[0] != bos else f"{tokenizer.decode([bos])} (begin of text)"
    )
    if row.mask is None:
        return begin
    return begin + ("; ends with the end-of-text token" if eos in row.ids[-2:] else "; no end-of-text token at its end")


def _summary(report: Report, paint: Paint) -> str:
    rows = report.rows
    name = {PROMPTS: "prompts", CONVERSATIONS: "conversations", PAIRS: "pairs"}[report.kind]
    number = len(rows) // 2 if report.kind == PAIRS else len(rows)
    table = [["rows", f"{number:,} {name}"]]
    counts = sorted(row.num_tokens for row in rows if row.num_tokens is not None)
    key, limit = report.limit
    if counts:
        median, high = counts[len(counts) // 2], counts[min(len(counts) - 1, len(counts) * 95 // 100)]
        table.append(["tokens", f"{counts[0]} to {counts[-1]}, median {median}, 95% at most {high}"])
        long = sum(count > limit for count in counts)
        table.append(
            ["over-long", f"{long:,} of {len(rows):,} longer than {key}={limit}{_fate(report) if long else ''}"]
        )
    elif report.tokenizer is None:
        table.append(["tokens", "not counted: give --model PATH"])
    if any(row.tools for row in rows):
        hidden = sum(row.hides_tools for row in rows)
        table.append(["tools", ", ".join(sorted({tool for row in rows for tool in row.tools}))])
        table += [["", f"{hidden:,} rows have tools that the template does not show"]] if hidden else []
    reasons = Counter(
        row.left_out for row in rows if row.left_out is not None and not row.left_out.startswith("longer")
    )
    # The sides of a pair are rows here, and go together.
    table += [
        ["left out", f"{count // (len(rows) // number):,} of {number:,}: {reason}"] for reason, count in reasons.items()
    ]
    if report.kind == PROMPTS:
        table += _sources(report)
    return f"{paint('bold', 'summary')}\n{format_table(table)}"


def _fate(report: Report) -> str:
    truncation = report.data.truncation
    if truncation == "drop" or (report.kind == PROMPTS and report.data.filter_overlong_prompts):
        return ": left out"
    return ": refused" if truncation == "error" else f": cut ({truncation})"


def _sources(report: Report) -> list[list[str]]:
    counts = Counter(row.data_source for row in report.rows)
    missing = report.unrewarded()
    rows = []
    for number, (source, count) in enumerate(counts.most_common()):
        reward = "no reward installed" if source in missing else "reward installed"
        if report.rewards is None or report.chosen is not None:
            reward = "scored by the run's own reward"
        name = "none" if source is None else cleaned(str(source))
        rows.append(["data source" if number == 0 else "", f"{name}: {count:,} ({reward})"])
    return rows


def _histogram(report: Report, paint: Paint) -> str:
    counts = [row.num_tokens for row in report.rows if row.num_tokens is not None]
    if len(set(counts)) < 2:
        return ""
    low, high = min(counts), max(counts)
    step = max(1, -(-(high - low + 1) // _BINS))
    bins = Counter((count - low) // step for count in counts)
    most = max(bins.values())
    limit = report.limit[1]
    lines = [paint("bold", "tokens per row")]
    size = len(str(high))
    for number in range((high - low) // step + 1):
        start = low + number * step
        bar = paint.bar * (-(-_BAR * bins[number] // most))
        mark = paint("red" if start > limit else "green", bar.ljust(_BAR))
        lines.append(f"  {start:>{size}} - {min(start + step - 1, high):>{size}}  {mark} {bins[number]:,}")
    return "\n".join(lines)


def _ruled(left: str, right: str, paint: Paint) -> str:
    rule = "-" * max(3, WIDTH - len(left) - len(right) - 6)
    return paint("bold", f"-- {left} {rule} {right}" if right else f"-- {left} {rule}")


def _runs(roles: Sequence[str]) -> list[str]:
    """Roles in order; a pattern that goes on is cut short."""
    return [*roles[:6], f"... ({len(roles)} messages)"] if len(roles) > 6 else list(roles)


def _item(text: str, paint: Paint) -> list[str]:
    first, *rest = paint.wrapped(cleaned(text), WIDTH - 2, "  ")
    return [f"  - {first.strip()}", *(f"    {line.strip()}" for line in rest)]
