from xml.etree import ElementTree

import pytest
from rl_report.charts import Chart, Line
from rl_report.run import Series
from rl_report.svg import chart_svg

USE = "{http://www.w3.org/2000/svg}use"


def chart(*values, **more):
    steps = tuple(range(1, len(values) + 1))
    return Chart("Reward", "", (Line("mean", Series(steps, values)),), **more)


def titles(text):
    root = ElementTree.fromstring(text)
    points = [group for group in root.iter() if group.get("class") == "points"]
    return [title.text for group in points for use in group.iter(USE) for title in use]


def test_it_takes_its_size_from_the_page_and_says_what_it_is():
    root = ElementTree.fromstring(chart_svg(chart(0.1, 0.5), "c1"))
    assert root.get("width") is None
    assert root.get("viewBox").startswith("0 0 ")
    assert (root.get("role"), root.get("aria-label")) == ("img", "Reward, by step")


def test_points_say_their_values():
    assert titles(chart_svg(chart(0.1, 0.5), "c1")) == ["step 1: mean 0.1", "step 2: mean 0.5"]


def test_ids_of_two_charts_differ_and_every_reference_has_its_target():
    found = []
    for name in ("c1", "c2"):
        text = chart_svg(chart(0.1, 0.5), name)
        ids = {element.get("id") for element in ElementTree.fromstring(text).iter() if element.get("id")}
        used = {
            value[1:]
            for element in ElementTree.fromstring(text).iter()
            for key, value in element.items()
            if key.endswith("href")
        }
        used |= {part.split(")")[0] for part in text.split("url(#")[1:]}
        assert used <= ids
        found.append(ids)
    assert found[0].isdisjoint(found[1])


def test_the_same_numbers_give_the_same_text():
    assert chart_svg(chart(0.1, 0.5), "c1") == chart_svg(chart(0.1, 0.5), "c1")


def test_a_long_curve_is_smoothed_and_shows_values_of_some_points():
    text = chart_svg(chart(*(float(step % 7) for step in range(3000))), "c1")
    assert len(titles(text)) == 120
    assert len(text) < 400_000


@pytest.mark.parametrize("values", [(0.0, 0.0), (1e-9, 1e-9), (-3.0, -3.0), (5.0,), (1e308, -1e308), (1e-300, 1e300)])
def test_odd_values_are_drawn(values):
    assert titles(chart_svg(chart(*values), "c1"))


def test_what_has_no_place_on_a_logarithmic_scale_is_left_out():
    assert titles(chart_svg(chart(1e-8, 0.0, 1e-3, is_log=True), "c1")) == ["step 1: mean 1e-08", "step 3: mean 0.001"]


def test_a_curve_with_nothing_on_the_scale_leaves_the_others():
    zero, one = Line("zero", Series((1, 2), (0.0, 0.0))), Line("one", Series((1, 2), (1.0, 2.0)))
    assert titles(chart_svg(Chart("Gap", "", (zero, one), is_log=True), "c1")) == ["step 1: one 1", "step 2: one 2"]


def test_a_band():
    line = Line("mean", Series((1, 2), (2.0, 3.0)), low=Series((1, 2), (1.0, 1.0)), high=Series((1, 2), (4.0, 5.0)))
    assert "opacity: 0.12" in chart_svg(Chart("Length", "", (line,)), "c1")
