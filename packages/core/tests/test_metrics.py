import math

import pytest
from rl_core.metrics import Metric, merge_metrics, metric_values

NAN = float("nan")


def reports(*values, **fields):
    return [{"x": Metric(value, **fields)} for value in values]


@pytest.mark.parametrize(
    ("reduce", "expected"), [("sum", 10.0), ("max", 5.0), ("min", 2.0), ("mean", 10 / 3), ("last", 2.0)]
)
def test_one_number_from_three_workers(reduce, expected):
    merged = merge_metrics(reports(3.0, 5.0, 2.0, reduce=reduce))
    assert merged["x"].value == pytest.approx(expected, abs=1e-12)
    assert merged["x"].reduce == reduce
    assert merged["x"].count == 3


def test_a_mean_is_weighted_by_what_it_averages():
    merged = merge_metrics([{"x": Metric(1.0, count=3)}, {"x": Metric(5.0, count=1)}])
    assert merged["x"] == Metric(2.0, count=4)  # (1 + 1 + 1 + 5) / 4


def test_a_mean_of_nothing_has_no_weight():
    assert merge_metrics([{"x": Metric(0.0, count=0)}, {"x": Metric(4.0, count=2)}])["x"] == Metric(4.0, count=2)
    assert merge_metrics([{"x": Metric(0.0, count=0)}]) == {}


def test_b94_a_nan_in_a_mean_is_skipped_and_counted():
    merged = merge_metrics(reports(0.5, NAN, NAN, 0.8, 0.6, 0.7))
    assert merged["x"].value == pytest.approx(0.65, abs=1e-12)
    assert merged["x"].count == 4
    assert merged["x"].nan_count == 2
    assert metric_values(merged) == {"x": pytest.approx(0.65), "x/nan_count": 2.0}


@pytest.mark.parametrize("reduce", ["mean", "max", "min", "last"])
def test_b94_a_metric_that_nobody_observed_is_left_out(reduce):
    assert merge_metrics(reports(NAN, NAN, reduce=reduce)) == {}
    assert merge_metrics([]) == {}
    assert merge_metrics([{}, {}]) == {}


@pytest.mark.parametrize("reduce", ["mean", "max", "min", "sum"])
def test_b94_a_nan_loss_stays_visible(reduce):
    for values in ([NAN, 1.0], [1.0, NAN]):
        merged = merge_metrics(reports(*values, reduce=reduce, keep_nan=True))
        assert math.isnan(merged["x"].value)
        assert merged["x"].nan_count == 1


def test_one_report_that_keeps_nan_is_enough_to_keep_it():
    merged = merge_metrics([{"x": Metric(NAN)}, {"x": Metric(1.0, keep_nan=True)}])
    assert math.isnan(merged["x"].value)


def test_a_missing_share_makes_a_sum_unknown():
    assert math.isnan(merge_metrics(reports(1.0, NAN, reduce="sum"))["x"].value)


@pytest.mark.parametrize(("reduce", "expected"), [("max", 3.0), ("min", 1.0), ("last", 3.0)])
def test_extremes_do_not_depend_on_where_the_nan_stands(reduce, expected):
    for values in ([NAN, 1.0, 3.0], [1.0, NAN, 3.0], [1.0, 3.0, NAN]):
        assert merge_metrics(reports(*values, reduce=reduce))["x"].value == expected


def test_infinity_is_a_number_to_report():
    assert merge_metrics(reports(1.0, math.inf, reduce="sum"))["x"].value == math.inf


def test_merging_twice_is_merging_once():
    values = [0.5, NAN, 2.0, 3.0, NAN]
    for reduce in ("sum", "mean", "max", "min"):
        every = reports(*values, reduce=reduce)
        halves = merge_metrics([merge_metrics(every[:2]), merge_metrics(every[2:])])["x"]
        whole = merge_metrics(every)["x"]
        assert halves.value == pytest.approx(whole.value, nan_ok=True)
        assert (halves.count, halves.nan_count) == (whole.count, whole.nan_count)


def test_names_may_be_absent_and_keep_their_order():
    merged = merge_metrics([{"b": Metric(1.0)}, {"a": Metric(2.0), "b": Metric(3.0)}])
    assert list(merged) == ["b", "a"]
    assert merged["b"].value == 2.0
    assert merged["a"].value == 2.0


def test_one_name_combines_in_one_way():
    with pytest.raises(ValueError, match="'x' is reported as max and as sum"):
        merge_metrics([{"x": Metric(1.0, "sum")}, {"x": Metric(1.0, "max")}])


def test_what_is_no_metric_is_refused():
    with pytest.raises(TypeError, match="'x' is a float"):
        merge_metrics([{"x": 1.0}])
    with pytest.raises(ValueError, match="'median'"):
        Metric(1.0, "median")
    with pytest.raises(ValueError, match="count is -1"):
        Metric(1.0, count=-1)


def test_the_value_is_a_plain_float():
    import torch

    assert type(Metric(torch.tensor(2.0)).value) is float
