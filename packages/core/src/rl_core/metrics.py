"""Numbers that workers report, and how the reports of several workers become one.

A worker sees only a part of the data, so a number says how it combines: shares of a global value add up, means are
weighted by what they average. NaN has two meanings and so two rules. In a *mean* it usually stands for "not observed
here" and is skipped; a loss or a gradient norm (``keep_nan=True``), and every sum, show it, since there it is the
news.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

Reduce = Literal["sum", "max", "min", "mean", "last"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One reported number.

    Attributes:
        value: the number; anything ``float()`` takes.
        reduce: how reports of one name combine. "sum" for shares of a global value; "mean" weighted by ``count``;
            "max", "min"; "last" for what is equal everywhere or only the newest value matters.
        keep_nan: a NaN stays visible in the combined value instead of being skipped. A sum always keeps it: a
            missing share makes the total unknown.
        count: observations behind ``value``, the weight of a mean. A report with count 0 has no weight.
        nan_count: observations that were NaN; those skipped are not in ``count``.
    """

    value: float
    reduce: Reduce = "mean"
    keep_nan: bool = False
    count: int = 1
    nan_count: int = 0

    def __post_init__(self) -> None:
        if self.reduce not in get_args(Reduce):
            msg = f"a metric cannot be combined by {self.reduce!r}; choose one of {', '.join(get_args(Reduce))}"
            raise ValueError(msg)
        if self.count < 0 or self.nan_count < 0:
            msg = f"a metric counts observations; count is {self.count}, nan_count is {self.nan_count}"
            raise ValueError(msg)
        object.__setattr__(self, "value", float(self.value))


def merge_metrics(reports: Sequence[Mapping[str, Metric]]) -> dict[str, Metric]:
    """Combine the reports of several workers, micro-batches or steps.

    A name may be absent from some reports. A name whose every value was skipped is left out: no number is better
    than a wrong one. The result can be merged again and gives the same as merging all at once.

    Args:
        reports: in rank (or time) order; "last" takes the last.

    Raises:
        TypeError: a report holds something else than ``Metric``.
        ValueError: two reports combine one name in different ways.
    """
    by_name: dict[str, list[Metric]] = {}
    for report in reports:
        for name, metric in report.items():
            if not isinstance(metric, Metric):
                msg = f"metric {name!r} is a {type(metric).__name__}; report Metric(value, reduce)"
                raise TypeError(msg)
            by_name.setdefault(name, []).append(metric)
    merged = ((name, _merge(name, metrics)) for name, metrics in by_name.items())
    return {name: metric for name, metric in merged if metric is not None}


def metric_values(metrics: Mapping[str, Metric]) -> dict[str, float]:
    """Plain numbers for a tracker; where NaN values were met, their number stands under ``<name>/nan_count``."""
    values: dict[str, float] = {}
    for name, metric in metrics.items():
        values[name] = metric.value
        if metric.nan_count:
            values[f"{name}/nan_count"] = float(metric.nan_count)
    return values


def _merge(name: str, metrics: Sequence[Metric]) -> Metric | None:
    reduces = sorted({metric.reduce for metric in metrics})
    if len(reduces) > 1:
        msg = f"metric {name!r} is reported as {' and as '.join(reduces)}; one name combines in one way"
        raise ValueError(msg)
    counted = [_count_nan(metric) for metric in metrics]
    keep_nan = any(metric.keep_nan for metric in metrics)
    shown = counted
    if not keep_nan and reduces[0] != "sum":
        shown = [metric for metric in counted if not math.isnan(metric.value)]
    if reduces[0] == "mean":
        shown = [metric for metric in shown if metric.count]
    if not shown:
        return None
    return replace(
        shown[-1],
        value=_combine(shown),
        keep_nan=keep_nan,
        count=sum(metric.count for metric in shown),
        nan_count=sum(metric.nan_count for metric in counted),
    )


def _count_nan(metric: Metric) -> Metric:
    """Put a NaN that was just reported on record; a merged one is already."""
    if math.isnan(metric.value) and not metric.nan_count:
        return replace(metric, nan_count=max(metric.count, 1))
    return metric


def _combine(metrics: Sequence[Metric]) -> float:
    values = [metric.value for metric in metrics]
    match metrics[0].reduce:
        case "sum":
            return _plain_sum(values)
        case "mean":
            weighted = _plain_sum(metric.value * metric.count for metric in metrics)
            return weighted / sum(metric.count for metric in metrics)
        case "last":
            return values[-1]
        case "max":
            # max() and min() of a list with NaN depend on its order.
            return math.nan if any(map(math.isnan, values)) else max(values)
        case "min":
            return math.nan if any(map(math.isnan, values)) else min(values)


def _plain_sum(values: Iterable[float]) -> float:
    """Left to right, so that equal reports give equal bits; infinities are allowed, unlike in ``math.fsum``."""
    total = 0.0
    for value in values:
        total += value
    return total
