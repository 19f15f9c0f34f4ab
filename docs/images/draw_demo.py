"""Draws ``demo.svg`` from a run of ``rl demo``: ``python docs/images/draw_demo.py outputs/demo/NAME/grpo``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from rl_demo.progress import SHOWS_WORK
from rl_report import load_run
from rl_report.charts import Chart, Line
from rl_report.svg import COLOURS, chart_svg

_SVG: Final = "http://www.w3.org/2000/svg"
_LABELS: Final = ("reward", "answers that show their work")
_LEGEND: Final = ((190, 118), (190, 132))
"""Where the labels stand, in the empty corner below the curves."""


def draw(run_folder: Path) -> str:
    """The two curves as a picture that stands alone: white behind it, labels in it, no marks under the pointer."""
    run = load_run(run_folder)
    names = ("critic/score/mean", SHOWS_WORK)
    lines = tuple(Line(label, run.series(name)) for label, name in zip(_LABELS, names, strict=True))
    root = ElementTree.fromstring(chart_svg(Chart("Reward and answers that show their work", "", lines), "demo"))
    root.set("width", "576")
    root.set("height", "288")
    for parent in list(root.iter()):
        for child in list(parent):
            if child.get("class") == "points":
                parent.remove(child)
    paper = ElementTree.Element(f"{{{_SVG}}}rect", {"width": "100%", "height": "100%", "fill": "#ffffff"})
    root.insert(0, paper)
    for label, (left, top), colour in zip(_LABELS, _LEGEND, COLOURS, strict=False):
        place = {"x": str(left), "y": str(top), "fill": colour, "font-size": "10", "font-family": "sans-serif"}
        ElementTree.SubElement(root, f"{{{_SVG}}}text", place).text = label
    return ElementTree.tostring(root, encoding="unicode") + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("demo.svg").write_text(draw(Path(sys.argv[1])), encoding="utf-8")
