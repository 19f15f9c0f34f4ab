"""Charts as SVG that can stand in a page: no fixed size, text in the page's font, values under the pointer."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rl_report.charts import SMOOTHED_FROM, moving_average
from rl_report.run import Series
from rl_report.text import number

if TYPE_CHECKING:
    from rl_report.charts import Chart, Line

COLOURS: Final = ("#2563eb", "#ea580c", "#16a34a", "#9333ea", "#0891b2", "#db2777")
_HOVERED: Final = 120
"""Points that show their value under the pointer; of longer curves, so many of them."""
_LARGEST: Final = 1e300
"""Beyond it the height of a chart would not be a number."""
_SVG: Final = "http://www.w3.org/2000/svg"
_LINK: Final = "http://www.w3.org/1999/xlink"
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "rl-report",
    "font.family": "sans-serif",
    "font.size": 9.5,
    "axes.edgecolor": "#cbd5e1",
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.limits": (-3, 5),
    "axes.formatter.use_mathtext": False,
    "grid.color": "#eef2f7",
    "grid.linewidth": 0.9,
    "xtick.color": "#64748b",
    "ytick.color": "#64748b",
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "text.color": "#334155",
    "path.simplify": True,
}


def chart_svg(chart: Chart, name: str) -> str:
    """The chart as an ``<svg>`` element.

    Args:
        chart: what to draw.
        name: makes the element's ids different from those of other charts on the page.
    """
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(4.8, 2.4), layout="constrained")
        axes = figure.add_subplot(yscale="log" if chart.is_log else "linear")
        labels: dict[str, list[str]] = {}
        for place, line in enumerate(chart.lines):
            labels[f"points{place}"] = _draw(axes, line, COLOURS[place % len(COLOURS)], f"points{place}")
        axes.set_axisbelow(True)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
        _frame(axes, chart)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _inline(buffer.getvalue(), name, chart.title, labels)


def _draw(axes: Any, line: Line, colour: str, gid: str) -> list[str]:
    """Draw one curve; returns what each of its hidden points says under the pointer."""
    series, drawn = line.series, np.clip(line.series.values, -_LARGEST, _LARGEST)
    if line.low and line.low.steps == line.high.steps:
        axes.fill_between(line.low.steps, line.low.values, line.high.values, color=colour, alpha=0.12, linewidth=0)
    is_long = len(series.steps) >= SMOOTHED_FROM
    few = line.has_points or len(series.steps) == 1
    axes.plot(
        series.steps,
        drawn,
        color=colour,
        linewidth=0.9 if is_long else 1.7,
        alpha=0.35 if is_long else 1,
        marker="o" if few else None,
        markersize=4,
        solid_capstyle="round",
        solid_joinstyle="round",
    )
    if is_long:
        axes.plot(series.steps, moving_average(Series(series.steps, tuple(drawn))).values, color=colour, linewidth=1.9)
    places = np.unique(np.linspace(0, len(series.steps) - 1, min(len(series.steps), _HOVERED)).round().astype(int))
    if axes.get_yscale() == "log":
        places = places[drawn[places] > 0]  # what has no place on the scale is not drawn
    if len(places):
        axes.scatter(np.take(series.steps, places), drawn[places], s=42, color=colour, linewidth=0, gid=gid)
    shown = [(series.steps[place], series.values[place]) for place in places.tolist()]
    return [f"step {step}: {line.label} {number(value)}".replace("  ", " ") for step, value in shown]


def _frame(axes: Any, chart: Chart) -> None:
    """Leave room around what varies, and do not blow rounding up to the height of the chart."""
    values = [value for line in chart.lines for part in (line.series, line.low, line.high) for value in part.values]
    low, high = max(min(values), -_LARGEST), min(max(values), _LARGEST)
    if not chart.is_log and high - low <= 1e-6 * max(abs(high), abs(low), 1e-12):
        margin = abs(high) * 0.5 or 1.0
        axes.set_ylim(-0.05 * margin if low >= 0 else low - margin, high + margin)
    steps = {step for line in chart.lines for step in line.series.steps}
    if len(steps) == 1:
        (step,) = steps
        axes.set_xlim(step - 1, step + 1)


def _inline(text: str, name: str, title: str, labels: dict[str, list[str]]) -> str:
    """The ``<svg>`` of a file as a part of a page."""
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _LINK)
    root = ElementTree.fromstring(text)
    for attribute in ("width", "height", "version"):
        root.attrib.pop(attribute, None)
    root.set("role", "img")
    root.set("aria-label", f"{title}, by step")
    for child in list(root):
        if child.tag.endswith("metadata"):
            root.remove(child)
    for group in root.iter(f"{{{_SVG}}}g"):
        if group.get("id") in labels:
            _make_hoverable(group, labels[str(group.get("id"))])
    _rename_ids(root, name)
    return ElementTree.tostring(root, encoding="unicode")


def _make_hoverable(group: ElementTree.Element, labels: Sequence[str]) -> None:
    group.set("class", "points")
    uses = list(group.iter(f"{{{_SVG}}}use"))
    for use, label in zip(uses, labels, strict=True):
        style = re.search(r"fill: (#\w+)", use.get("style", ""))
        use.set("style", f"fill: {style[1]}" if style else "")
        ElementTree.SubElement(use, f"{{{_SVG}}}title").text = label


def _rename_ids(root: ElementTree.Element, name: str) -> None:
    for element in root.iter():
        for attribute, value in list(element.attrib.items()):
            if attribute == "id":
                element.set(attribute, f"{name}-{value}")
            elif attribute == f"{{{_LINK}}}href":
                element.set(attribute, f"#{name}-{value.removeprefix('#')}")
            elif "url(#" in value:
                element.set(attribute, value.replace("url(#", f"url(#{name}-"))
