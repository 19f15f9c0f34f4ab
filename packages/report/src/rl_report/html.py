"""The report as one HTML page that needs nothing else: no script, no network, no file beside it."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jinja2 import Environment, StrictUndefined
from rl_core.errors import DataError

from rl_report import text
from rl_report._version import __version__
from rl_report.charts import SMOOTHED_FROM, parity_chart
from rl_report.story import tell
from rl_report.svg import COLOURS, chart_svg

if TYPE_CHECKING:
    from rl_report.run import Run

FILE_NAME: Final = "report.html"

_PHASE_COLOURS: Final = (
    *("#2563eb", "#0891b2", "#0d9488", "#16a34a", "#ca8a04", "#ea580c", "#dc2626", "#9333ea", "#64748b", "#94a3b8"),
)


def html_report(run: Run) -> str:
    """The page as text."""
    story = tell(run)
    gap = parity_chart(run)
    template = _environment().from_string(_file("report.html.j2"))
    return template.render(
        run=run,
        story=story,
        style=_file("style.css"),
        charts=[(chart, chart_svg(chart, f"c{place}")) for place, chart in enumerate(story.charts)],
        gap=gap,
        gap_svg="" if gap is None else chart_svg(gap, "gap"),
        line_colours=COLOURS,
        is_smoothed=len(run.rows) >= SMOOTHED_FROM,
        phase_colours=_PHASE_COLOURS,
        numbers=[(name, run.series(name)) for name in run.names if run.series(name)],
        last_written=_last_written(run),
        version=__version__,
    )


def write_html(run: Run, path: str | Path | None = None) -> Path:
    """Write the page, whole or not at all.

    Args:
        run: what to report.
        path: file to write; None writes ``report.html`` in the run folder.

    Returns:
        The file.

    Raises:
        DataError: it cannot be written there.
    """
    target = run.folder / FILE_NAME if path is None else Path(path).expanduser()
    if target.is_dir():
        target = target / FILE_NAME
    page = html_report(run)
    partial = target.with_name(f".{target.name}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(page, encoding="utf-8")
        partial.replace(target)
    except OSError as error:
        msg = f"the report cannot be written to {target}: {error.strerror or error}. Choose a file with --html PATH."
        raise DataError(msg) from error
    return target


def _environment() -> Environment:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    filters = (text.number, text.duration, text.percent, text.gib, text.plain, text.count)
    environment.filters.update({function.__name__: function for function in filters})
    return environment


def _file(name: str) -> str:
    return resources.files("rl_report").joinpath("templates", name).read_text(encoding="utf-8")


def _last_written(run: Run) -> str:
    moment = datetime.fromtimestamp((run.folder / "metrics.jsonl").stat().st_mtime, tz=UTC)
    return f"{moment:%Y-%m-%d %H:%M} UTC"
