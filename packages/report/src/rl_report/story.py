"""What a report tells about a run, in the order in which it is told; how it looks is the business of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from rl_report.charts import SMOOTHED_FROM, Chart, charts, moving_average
from rl_report.costs import Memory, Timing, memory, timing
from rl_report.run import Run, Sample, Series
from rl_report.text import count, duration, number, printable, short
from rl_report.validation import Headline, headlines

SHOWN_STEPS: Final = 5
"""Training steps whose samples a report shows."""

_FAILED_GROUPS: Final = "rollout/failed_groups"
_FAILURES: Final = {
    "rollout/failed": "rollouts that failed and were left out",
    _FAILED_GROUPS: "prompts of which every rollout failed",
    "reward/missing": "rewards that are missing; their rollouts were left out",
    "val-aux/rollout/failed": "held-out answers that failed",
    "val-aux/reward/missing": "held-out rewards that are missing",
}


@dataclass(frozen=True, slots=True)
class Fact:
    """A number that a reader looks for first."""

    label: str
    value: str
    detail: str = ""
    is_good: bool | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that was counted and left out.

    Attributes:
        label: what.
        total: over the whole run.
        worst_step: step with most of it; None where there is none.
        worst: how many there.
        is_counted_elsewhere: whether it is another view of failures that stand in the list already.
    """

    label: str
    total: int
    worst_step: int | None = None
    worst: int = 0
    is_counted_elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Parity:
    """How far the generator's log-probs lie from the trainer's, in nats.

    Attributes:
        largest_mean: largest mean gap of a step.
        at_step: where it was.
        largest: largest gap of a single token.
        largest_probability: largest difference in probability of a single token; None if not logged.
        limit: of the first step's mean gap, from the configuration; None if not known.
    """

    largest_mean: float
    at_step: int
    largest: float
    largest_probability: float | None
    limit: float | None

    @property
    def is_close(self) -> bool:
        """Whether the two agree as well as engines in reduced precision can."""
        return self.largest_mean <= 0.05


@dataclass(frozen=True, slots=True)
class Pair:
    """The answers to one held-out prompt at the first and at the last validation; either may be missing."""

    before: Sample | None
    after: Sample | None

    @property
    def sample(self) -> Sample:
        """The one that is there, for what both share."""
        found = self.after or self.before
        assert found is not None  # a pair is made of at least one sample
        return found

    @property
    def change(self) -> float | None:
        """By how much the score rose; None where one is missing."""
        if self.before is None or self.after is None or self.before.score is None or self.after.score is None:
            return None
        return self.after.score - self.before.score


@dataclass(frozen=True, slots=True)
class Story:
    """Everything that a report shows.

    Attributes:
        title: name of the run.
        subtitle: what kind of run it is.
        verdict: what came of it, in one sentence.
        facts: the numbers that a reader looks for first.
        charts: curves.
        headlines: validation results by data source.
        pairs: held-out prompts, before and after.
        pair_steps: the two validations that ``pairs`` compares.
        samples: step -> samples of that training step.
        timing: where the time went.
        memory: where the memory went.
        parity: None where the generator reports no log-probs.
        failures: what was left out, what is zero too.
        parts: what the run is made of.
        versions: of what it ran with.
        plugins: distribution -> version, of those that were installed.
        command: as it was typed, secrets redacted.
        notes: what was odd about the files.
    """

    title: str
    subtitle: str
    verdict: str
    facts: tuple[Fact, ...]
    charts: tuple[Chart, ...]
    headlines: tuple[Headline, ...]
    pairs: tuple[Pair, ...]
    pair_steps: tuple[int, int] | None
    samples: Mapping[int, tuple[Sample, ...]]
    timing: Timing
    memory: Memory
    parity: Parity | None
    failures: tuple[Failure, ...]
    parts: Mapping[str, str]
    versions: Mapping[str, str]
    plugins: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    notes: tuple[str, ...] = ()

    @property
    def pair_title(self) -> str:
        """What the comparison of held-out answers is called; only step 0 is before training."""
        if self.pair_steps is None or self.pair_steps[0] == self.pair_steps[1]:
            return "Held-out answers"
        return "Before and after" if self.pair_steps[0] == 0 else "First and last validation"

    @property
    def pair_names(self) -> tuple[str, str]:
        """How the two sides of a pair are called."""
        if self.pair_steps is None or self.pair_steps[0] == self.pair_steps[1]:
            return "", "answer"
        return ("before", "after") if self.pair_steps[0] == 0 else ("first", "last")


def tell(run: Run) -> Story:
    """The story of a run."""
    found, times, gap = headlines(run), timing(run), _parity(run)
    failures = _failures(run)
    pairs, steps = _pairs(run.samples)
    return Story(
        title=str(run.setting("trainer.experiment_name") or printable(run.folder.resolve().name)),
        subtitle=_subtitle(run),
        verdict=_verdict(run, found),
        facts=tuple(_facts(run, found, times, gap, failures)),
        charts=charts(run),
        headlines=found,
        pairs=pairs,
        pair_steps=steps,
        samples=_samples(run.samples),
        timing=times,
        memory=memory(run),
        parity=gap,
        failures=failures,
        parts=_parts(run),
        versions=_versions(run.environment),
        plugins={str(item.get("dist")): str(item.get("version")) for item in run.environment.get("plugins", [])},
        command=" ".join(map(str, run.environment.get("command", []))),
        notes=run.notes,
    )


def movement(first: float, last: float) -> str:
    """``rose from 0.2 to 0.9``, ``stayed at 0.5``."""
    if short(first) == short(last):
        return f"stayed at {short(last)}"
    return f"{'rose' if last > first else 'fell'} from {short(first)} to {short(last)}"


def _verdict(run: Run, found: Sequence[Headline]) -> str:
    reward, loss = run.series("critic/score/mean"), run.series("train/loss")
    sentences = []
    for label, series in (("Mean reward", reward), ("Training loss", loss)):
        if len(series.steps) > 1:
            first, last, how = _ends(series)
            sentences.append(
                f"{label} {movement(first, last)} in {count(len(series.steps), 'step')}{how and f' ({how})'}."
            )
        elif series:
            sentences.append(f"{label} is {short(series.last)} after the one step there is.")
    for item in found[:2]:
        if item.is_compared:
            sentences.append(
                f"Held-out {item.variable} {movement(item.before, item.after)}"
                f"{f' on {item.source}' if item.source else ''} ({_compared(item.steps)})."
            )
        else:
            where = f" on {item.source}" if item.source else ""
            sentences.append(f"Held-out {item.variable} is {short(item.after)}{where}, validated once.")
    return (
        " ".join(sentences) or f"{count(len(run.rows), 'step')} logged; neither a reward nor a loss among the numbers."
    )


def _compared(steps: tuple[int, int]) -> str:
    """Which two validations a sentence speaks of: the weights before training are only those of step 0."""
    return "before and after" if steps[0] == 0 else f"from step {steps[0]} to step {steps[1]}"


def _ends(series: Series) -> tuple[float, float, str]:
    """First and last value, and how they were made: of a long curve not of single steps, whose noise says nothing."""
    if len(series.steps) < SMOOTHED_FROM:
        return series.first, series.last, ""
    smooth = moving_average(series)
    return smooth.first, smooth.last, "moving average"


def _facts(
    run: Run, found: Sequence[Headline], times: Timing, gap: Parity | None, failures: Sequence[Failure]
) -> list[Fact]:
    facts = []
    for label, name, rising in (("Reward", "critic/score/mean", True), ("Training loss", "train/loss", False)):
        series = run.series(name)
        if series:
            first, last, how = _ends(series)
            value = f"{short(first)} → {short(last)}"
            facts.append(Fact(label, value, how or "first → last step", _is_good(first, last, rising=rising)))
    for item in found[:2]:
        is_loss = item.variable == "loss"
        facts.append(
            Fact(
                f"Held-out {item.variable}",
                f"{short(item.before)} → {short(item.after)}" if item.is_compared else short(item.after),
                item.source or f"step {item.steps[0]} → {item.steps[1]}",
                _is_good(item.before, item.after, rising=not is_loss),
            )
        )
    facts.append(_steps(run))
    if times.total_s:
        facts.append(Fact("Time", duration(times.total_s), _throughput(run)))
    if gap:
        facts.append(
            Fact(
                "Log-prob gap",
                f"{gap.largest_mean:.2g} nats",
                "largest mean of a step",
                None if gap.is_close else False,
            )
        )
    lost = sum(item.total for item in failures if not item.is_counted_elsewhere)
    if failures:
        facts.append(Fact("Missing or failed", str(lost), "counted and left out", None if not lost else False))
    return facts


def _is_good(first: float, last: float, *, rising: bool) -> bool | None:
    if short(first) == short(last):
        return None
    return (last > first) is rising


def _steps(run: Run) -> Fact:
    done = max(run.rows)
    total = run.series("training/total_steps")
    if not total:
        return Fact("Steps", str(done))
    if done >= total.last:
        return Fact("Steps", f"{done} of {number(total.last)}", "complete")
    return Fact("Steps", f"{done} of {number(total.last)}", "not complete", is_good=False)


def _throughput(run: Run) -> str:
    series = run.series("perf/throughput")
    return f"{short(median(series.values))} tokens a second" if series else ""


def _parity(run: Run) -> Parity | None:
    mean, largest = run.series("training/logprob_gap/mean"), run.series("training/logprob_gap/max")
    if not mean:
        return None
    top = max(mean.values)
    probability = run.series("training/rollout_probs_diff_max")
    limit = run.setting("trainer.parity.first_sync_tolerance")
    return Parity(
        largest_mean=top,
        at_step=mean.steps[mean.values.index(top)],
        largest=max(largest.values, default=top),
        largest_probability=max(probability.values, default=None),
        limit=limit if isinstance(limit, int | float) else None,
    )


def _failures(run: Run) -> tuple[Failure, ...]:
    labels = dict(_FAILURES)
    for name in run.names:
        role, _, last = name.rpartition("/")
        if last == "skipped_steps":
            of = "" if role == "train" else f" of the {role}"
            labels[name] = f"optimizer steps{of} that were skipped, their gradient not being finite"
        elif last == "nan_count":
            labels[name] = f"values of {role} that were not a number"
    found = []
    for name, label in labels.items():
        series = run.series(name)
        if series:
            worst = max(series.values)
            step = series.steps[series.values.index(worst)] if worst else None
            again = name == _FAILED_GROUPS
            found.append(Failure(label, round(sum(series.values)), step, round(worst), is_counted_elsewhere=again))
    return tuple(found)


def _pairs(samples: Sequence[Sample]) -> tuple[tuple[Pair, ...], tuple[int, int] | None]:
    held_out = [sample for sample in samples if sample.split == "val"]
    if not held_out:
        return (), None
    first, last = min(sample.step for sample in held_out), max(sample.step for sample in held_out)
    before = {sample.uid: sample for sample in held_out if sample.step == first and first != last}
    after = {sample.uid: sample for sample in held_out if sample.step == last}
    return tuple(Pair(before.get(uid), after.get(uid)) for uid in sorted({*before, *after})), (first, last)


def _samples(samples: Sequence[Sample]) -> dict[int, tuple[Sample, ...]]:
    steps = sorted({sample.step for sample in samples if sample.split == "train"})
    most = len(steps) - 1
    chosen = (
        steps
        if len(steps) <= SHOWN_STEPS
        else [steps[round(place * most / (SHOWN_STEPS - 1))] for place in range(SHOWN_STEPS)]
    )
    return {step: tuple(item for item in samples if item.split == "train" and item.step == step) for step in chosen}


def _subtitle(run: Run) -> str:
    if run.series("train/loss") or run.series("val/loss"):
        kind = "supervised fine-tuning"
    else:
        estimator = run.setting("algorithm.adv_estimator")
        named = {"grpo": "GRPO", "gae": "PPO with a critic"}
        kind = "reinforcement learning" if estimator is None else named.get(estimator, str(estimator))
    parts = [run.setting("trainer.project_name"), kind]
    return " · ".join(str(part) for part in parts if part)


def _parts(run: Run) -> dict[str, str]:
    """What the run is made of; names that a configuration does not have are left out."""
    keys = {
        "model": ("actor_rollout_ref.model.path", "model.path"),
        "advantage": ("algorithm.adv_estimator",),
        "training engine": ("actor_rollout_ref.actor.strategy", "engine.strategy"),
        "generator": ("actor_rollout_ref.rollout.name",),
        "responses a prompt": ("actor_rollout_ref.rollout.n",),
        "rows a step": ("data.train_batch_size",),
        "learning rate": ("actor_rollout_ref.actor.optim.lr", "optim.lr"),
        "training rows": ("data.train_files",),
        "held-out rows": ("data.val_files",),
        "reward": ("custom_reward_function.path",),
        "seed": ("trainer.seed",),
        "workers": ("trainer.n_gpus_per_node",),
    }
    found = {}
    for label, paths in keys.items():
        value = next((value for path in paths if (value := run.setting(path)) is not None), None)
        if value is not None:
            found[label] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    if run.checkpoints:
        found["checkpoints"] = "steps " + ", ".join(map(str, run.checkpoints))
    return found


def _versions(environment: Mapping[str, Any]) -> dict[str, str]:
    if not environment:
        return {}
    found = {"Python": str(environment.get("python", "–")), "platform": str(environment.get("platform", "–"))}
    git = environment.get("git")
    if isinstance(git, Mapping):
        found["git commit"] = (
            f"{git.get('commit')}{', with changes that are not committed' if git.get('modified') else ''}"
        )
    packages = environment.get("packages", {})
    return found | {str(name): str(version) for name, version in packages.items()}
