"""The report in a terminal: the same story in 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import plotext
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rl_report.charts import SMOOTHED_FROM, Chart, moving_average
from rl_report.story import Pair, Story, tell
from rl_report.text import count, duration, gib, percent, plain, short

if TYPE_CHECKING:
    from rl_report.run import Run, Sample

WIDTH: Final = 80
PAIRS: Final = 4
"""Held-out prompts that are shown; the page shows all."""

_CURVES: Final = ("Loss", "Reward", "Held-out")
_CURVE_ROWS: Final = 13
_MOST_MARKS: Final = 36
_POINT: Final = "•"
_MARKS: Final = ("+", "*", "x", "#", "%")
_BAR: Final = 24


def terminal_report(run: Run, console: Console | None = None) -> None:
    """Print the report.

    Args:
        run: what to report.
        console: where to; None takes standard output, 80 columns wide where it is no terminal.
    """
    out = console or Console(highlight=False)
    if console is None and not out.is_terminal:
        out = Console(highlight=False, width=WIDTH)
    story = tell(run)
    out.print(Text.assemble((story.title, "bold"), f"  {story.subtitle}"))
    out.print(Text(story.verdict))
    for note in story.notes:
        out.print(Text(f"note: {note}", "yellow"))
    out.print()
    out.print(_facts(story))
    for chart in story.charts:
        if chart.title in _CURVES and any(len(line.series.steps) > 1 for line in chart.lines):
            _heading(out, chart.title, f"by step{_legend(chart)}")
            out.print(_curve(chart, min(out.width, WIDTH)))
    _print_pairs(out, story)
    _print_samples(out, story)
    _print_costs(out, story)
    _print_checks(out, story)


def _heading(out: Console, title: str, about: str = "") -> None:
    out.print()
    out.print(Text.assemble((title, "bold"), (f"  {about}" if about else "", "dim")))


def _facts(story: Story) -> Table:
    table = _table("label", "value", "detail")
    for fact in story.facts:
        style = {True: "bold green", False: "bold red", None: "bold"}[fact.is_good]
        table.add_row(Text(fact.label), Text(fact.value, style), Text(fact.detail, "dim"))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    for name in columns:
        table.add_column(
            justify="right" if name.startswith("n") else "left", no_wrap=name != "detail", overflow="ellipsis"
        )
    return table


def _legend(chart: Chart) -> str:
    labels = [f", {_mark(chart, place)} {line.label}" for place, line in enumerate(chart.lines)]
    smoothed = ", moving average" if any(len(line.series.steps) >= SMOOTHED_FROM for line in chart.lines) else ""
    return "".join(labels if chart.has_legend else []) + smoothed


def _mark(chart: Chart, place: int) -> str:
    """How a curve is told from the others: the first is a line, where it has few points with these on it."""
    return _MARKS[place - 1] if place else _POINT if chart.lines[0].has_points else "⠒"


def _curve(chart: Chart, width: int) -> Text:
    figure = plotext.figure  # the library has one, so that it is emptied before and after
    figure.clear()
    values: list[float] = []
    steps: list[int] = []
    for place, line in enumerate(chart.lines):
        series = moving_average(line.series) if len(line.series.steps) >= SMOOTHED_FROM else line.series
        values += series.values
        steps += series.steps
        points = (list(series.steps), list(series.values))
        if place == 0:
            figure.draw(figure.signal(*points, marker="braille").lines(True))
        if place or line.has_points:
            every = -(-len(series.steps) // _MOST_MARKS)
            figure.draw(figure.signal(points[0][::-every], points[1][::-every], marker=_mark(chart, place)))
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(high), abs(low), 1e-12):
        low, high = low - (abs(low) / 2 or 1.0), high + (abs(high) / 2 or 1.0)
    heights = [low + (high - low) * place / 4 for place in range(5)]
    figure.ruler("y").lim(low, high)
    figure.ruler("y").ticks(heights, [short(height) for height in heights])
    marks = _whole_ticks(min(steps), max(steps))
    figure.ruler("x").ticks(marks, [str(mark) for mark in marks])
    figure.plot_size(width, _CURVE_ROWS)
    text = Text(figure.build().string(colorless=True).rstrip("\n"), no_wrap=True)
    figure.clear()
    text.highlight_regex("[⠁-⣿]+", "cyan")
    text.highlight_regex(_POINT, "bold green")
    return text


def _whole_ticks(first: int, last: int) -> list[int]:
    """At most seven round whole numbers from ``first`` to ``last``."""
    size = next(
        unit * 10**power for power in range(12) for unit in (1, 2, 5) if (last - first) / (unit * 10**power) <= 6
    )
    return list(range(-(-first // size) * size, last + 1, size))


def _print_pairs(out: Console, story: Story) -> None:
    if not story.pairs or story.pair_steps is None:
        return
    first, last = story.pair_steps
    about = f"the same held-out prompts at step {first} and step {last}" if first != last else f"step {last}"
    _heading(out, story.pair_title, about)
    names = story.pair_names
    for pair in _telling(story.pairs)[:PAIRS]:
        sample = pair.sample
        expected = "" if sample.ground_truth is None else f"   expected {_one_line(plain(sample.ground_truth))}"
        end = _cut(expected, out.width // 2)
        out.print(_cut(f"  {_one_line(sample.prompt)}", out.width - end.cell_len).append(end), style="dim")
        if first != last:
            out.print(_answer(names[0], pair.before, out.width))
        style = "" if not pair.change else "green" if pair.change > 0 else "red"
        out.print(_answer(names[1], pair.after, out.width, style))
    if len(story.pairs) > PAIRS:
        out.print(Text(f"  and {count(len(story.pairs) - PAIRS, 'more prompt')} in the page", "dim"))


def _telling(pairs: tuple[Pair, ...]) -> list[Pair]:
    """Pairs with the largest changes of score first; the order of the file among equals."""
    return sorted(pairs, key=lambda pair: -abs(pair.change or 0))


def _answer(name: str, sample: Sample | None, width: int, style: str = "") -> Text:
    if sample is None:
        return Text(f"    {name:7}no answer")
    score = "none" if sample.score is None else short(sample.score)
    return _cut(f"    {name:7}{score:>6}  {_one_line(sample.response) or '(empty)'}", width, style)


def _print_samples(out: Console, story: Story) -> None:
    if story.pairs or not story.samples:
        return  # the held-out answers say more, and the page has all
    step = max(story.samples)
    _heading(out, "Samples", f"of step {step}")
    prompt = None
    for sample in story.samples[step][:PAIRS]:
        if sample.uid != prompt:
            out.print(_cut(f"  {_one_line(sample.prompt)}", out.width), style="dim")
            prompt = sample.uid
        out.print(_answer("scored", sample, out.width))


def _print_costs(out: Console, story: Story) -> None:
    times, held = story.timing, story.memory
    if times.phases:
        typical = f", {duration(times.step_s)} in a typical step" if times.step_s else ""
        _heading(out, "Time by phase", f"{duration(times.total_s)} in all{typical}")
        table = _table("phase", "bar", "n", "n")
        largest = max(phase.share for phase in times.phases)
        for phase in times.phases:
            texts = map(Text, (percent(phase.share), duration(phase.total_s)))
            table.add_row(Text(f"  {phase.label}"), _bar(phase.share / largest), *texts)
        out.print(table)
    if held.phases:
        kind = "largest torch allocation on a device" if held.is_device else "resident set of the worker's process"
        _heading(out, "Memory by phase", kind)
        table = _table("phase", "bar", "n")
        most = max(item.gib for item in held.phases) or 1.0
        roles = {item.role for item in held.phases}
        for item in held.phases:
            role = f"{item.role}: " if len(roles) > 1 else ""
            label = Text(f"  {(role + item.phase).replace('_', ' ')}")
            table.add_row(label, _bar(item.gib / most), Text(gib(item.gib)))
        out.print(table)


def _bar(share: float) -> Text:
    eighths = round(share * _BAR * 8)
    return Text("█" * (eighths // 8) + ("", *"▏▎▍▌▋▊▉")[eighths % 8], "blue")


def _print_checks(out: Console, story: Story) -> None:
    gap = story.parity
    if gap is not None:
        _heading(out, "Parity", "log-probs of generator and trainer on the same tokens")
        table = _table("label", "value", "detail")
        table.add_row("  largest mean gap of a step", f"{gap.largest_mean:.2g} nats", f"in step {gap.at_step}")
        table.add_row("  largest gap of one token", f"{gap.largest:.2g} nats", "")
        if gap.limit is not None:
            table.add_row("  limit of the first step", f"{short(gap.limit)} nats", "")
        out.print(table)
    lost = [item for item in story.failures if item.total]
    if story.failures:
        _heading(out, "Missing and failed", "" if lost else "nothing")
        for item in lost:
            where = f" (most in step {item.worst_step}: {item.worst})" if item.worst_step is not None else ""
            out.print(Text(f"  {item.total} {item.label}{where}", "red"))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _cut(text: str, width: int, style: str = "") -> Text:
    """One line of at most ``width`` columns."""
    line = Text(text, style, no_wrap=True, overflow="ellipsis")
    line.truncate(width, overflow="ellipsis")
    return line
