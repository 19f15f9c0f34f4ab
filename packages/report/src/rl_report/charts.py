"""Which curves a report has."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import fsum
from typing import Final

from rl_report.run import Run, Series
from rl_report.validation import headlines

MOST_LINES: Final = 6
"""Curves in one chart."""

SMOOTHED_FROM: Final = 60
"""Points from which on a curve is drawn with its moving average."""

_ROLES: Final = {"actor": "actor", "critic": "critic", "train": "model"}


@dataclass(frozen=True, slots=True)
class Line:
    """One curve.

    Attributes:
        label: in the legend.
        series: its points.
        low: lower edge of a band around it; empty without one.
        high: upper edge.
        has_points: whether each point is marked, for curves of few points.
    """

    label: str
    series: Series
    low: Series = Series((), ())
    high: Series = Series((), ())
    has_points: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """Curves that share their axes.

    Attributes:
        title: what it shows.
        about: one sentence for those who do not know the number.
        lines: at least one.
        is_log: whether values stand on a logarithmic scale.
        has_legend: whether the title alone does not tell the lines.
    """

    title: str
    about: str
    lines: tuple[Line, ...]
    is_log: bool = False
    has_legend: bool = False


def charts(run: Run) -> tuple[Chart, ...]:
    """The curves that the run has numbers for, most important first."""
    found = [
        _chart(
            "Loss",
            "Mean over the tokens that are trained on, or of a reward model over pairs.",
            [_line(run, "train/loss", "training"), _line(run, "val/loss", "held-out", has_points=True)],
        ),
        _chart(
            "Preference accuracy",
            "Share of pairs whose better answer has the higher score; 0.5 is chance.",
            [_line(run, "train/accuracy", "training"), _line(run, "val/accuracy", "held-out", has_points=True)],
        ),
        _reward(run),
        _held_out(run),
        _components(run),
        _chart("Response length", "Tokens; the band goes from the shortest to the longest.", [_length(run)]),
        *_policy(run),
        *_updates(run),
        _chart(
            "Tokens a second",
            "All tokens of a step over its time.",
            [_line(run, "perf/throughput", "all"), _line(run, "train/tokens_per_second", "all")],
        ),
    ]
    return tuple(chart for chart in found if chart is not None)


def parity_chart(run: Run) -> Chart | None:
    """The gap between generator and trainer."""
    lines = [
        _line(run, "training/logprob_gap/max", "largest of a token"),
        _line(run, "training/logprob_gap/mean", "mean"),
    ]
    found = _chart("Log-prob gap", "In nats.", lines)
    if found is None:
        return None
    positive = [value for line in found.lines for value in line.series.values if value > 0]
    is_wide = bool(positive) and max(positive) > 50 * min(positive)
    return replace(found, is_log=is_wide)


def moving_average(series: Series) -> Series:
    """Mean of the points around each point, a 25th of the curve; ends have fewer. As long as ``series``."""
    half = max(len(series.values) // 50, 1)
    windows = (series.values[max(place - half, 0) : place + half + 1] for place in range(len(series.values)))
    return Series(series.steps, tuple(fsum(window) / len(window) for window in windows))


def _policy(run: Run) -> list[Chart | None]:
    return [
        _chart(
            "KL",
            "Distance of the policy from another one.",
            [
                _line(run, "actor/kl_loss", "to the reference"),
                _line(run, "actor/reward_kl_penalty", "to the reference, in the reward"),
                _line(run, "actor/ppo_kl", "to the policy that sampled"),
            ],
        ),
        _chart(
            "Entropy",
            "Of the next token, in nats; it falls as the policy becomes sure.",
            [_line(run, "actor/entropy", "")],
        ),
    ]


def _updates(run: Run) -> list[Chart | None]:
    def by_role(name: str) -> list[Line]:
        return [_line(run, f"{role}/{name}", label) for role, label in _ROLES.items()]

    return [
        _chart("Gradient norm", "Before clipping.", by_role("grad_norm")),
        _chart("Learning rate", "Of the step.", by_role("lr")),
        _chart(
            "Loss of the updates",
            "The policy's hovers around zero; the value function's should fall.",
            [_line(run, "actor/pg_loss", "policy"), _line(run, "critic/vf_loss", "value function")],
        ),
        _chart(
            "Clipped tokens",
            "Share of the tokens whose update was clipped.",
            [_line(run, "actor/pg_clipfrac", "policy"), _line(run, "critic/vf_clipfrac", "value function")],
        ),
    ]


def _reward(run: Run) -> Chart | None:
    lines = [_line(run, "critic/score/mean", "reward")]
    penalised = run.series("critic/rewards/mean")
    if penalised.values != run.series("critic/score/mean").values:
        lines.append(Line("after the KL penalty", penalised))
    return _chart("Reward", "Mean score of a step's responses.", lines)


def _held_out(run: Run) -> Chart | None:
    lines = [
        Line(f"{item.source}, {item.variable}", item.series, has_points=True)
        for item in headlines(run)
        if item.variable != "loss"
    ]
    return _chart("Held-out", "Answers to prompts that are not trained on.", lines[:MOST_LINES], has_legend=True)


def _components(run: Run) -> Chart | None:
    names = [name for name in run.names if name.startswith("reward_extra/") and name.endswith("/mean")]
    lines = [_line(run, name, name.split("/", 1)[1].removesuffix("/mean")) for name in names]
    return _chart(
        "Reward components", "Further values of the reward, means of a step.", lines[:MOST_LINES], has_legend=True
    )


def _length(run: Run) -> Line:
    name = "response_length"
    return Line("mean", run.series(f"{name}/mean"), run.series(f"{name}/min"), run.series(f"{name}/max"))


def _line(run: Run, name: str, label: str, *, has_points: bool = False) -> Line:
    return Line(label, run.series(name), has_points=has_points)


def _chart(title: str, about: str, lines: list[Line], *, has_legend: bool = False) -> Chart | None:
    kept = tuple(line for line in lines if line.series)
    return Chart(title, about, kept, has_legend=has_legend or len(kept) > 1) if kept else None
