"""The parity report: numbers, parts, cause and outliers of one batch, for people and for ``parity.jsonl``."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from rl_core.trainer.ppo.parity_causes import NO_CAUSE, Cause, Setting, find_cause
from rl_core.trainer.ppo.parity_outliers import Outlier, find_outliers, outlier_lines
from rl_core.trainer.ppo.parity_stats import Part, gap_metrics, parts
from rl_core.trainer.ppo.parity_tokens import parity_tokens

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.trainer.ppo.parity_tokens import ParityTokens

WIDTH: Final = 100
_STALE_FROM: Final = 3.0
"""So many times the gap of the current weights makes older ones the cause of theirs."""


@dataclass(frozen=True, slots=True)
class ParityReport:
    """What is known about the gap of a batch.

    Attributes:
        num_tokens: trained tokens of the weights that are trained now.
        metrics: over these tokens, under the names of ``parity_metrics``.
        cause: of their gap.
        staleness: of the gap of tokens that older weights drew; None where there are none, or theirs is no larger.
        parts: the gap split by version, position and probability, over all tokens.
        outliers: tokens with the largest gap, largest first, of the current weights where these drew some.
    """

    num_tokens: int
    metrics: dict[str, float]
    cause: Cause
    staleness: Cause | None
    parts: Sequence[Part]
    outliers: Sequence[Outlier]

    def record(self, step: int) -> dict[str, Any]:
        """One line of ``parity.jsonl``."""
        return {
            "step": step,
            "num_tokens": self.num_tokens,
            "metrics": self.metrics,
            "cause": asdict(self.cause),
            "staleness": None if self.staleness is None else asdict(self.staleness),
            "parts": [asdict(part) for part in self.parts],
            "outliers": [item.record() for item in self.outliers],
        }

    def table(self, more: Sequence[Part] = ()) -> list[str]:
        """Numbers and parts, ``more`` of these last, as lines for people."""
        value = {name.removeprefix("training/"): number for name, number in self.metrics.items()}
        lines = [f"tokens        {self.num_tokens:,}"]
        if "logprob_gap/mean" in value:
            lines.append(f"log-prob gap  mean {value['logprob_gap/mean']:.3g}, max {value['logprob_gap/max']:.3g} nats")
            spread = (f"{key} {value[f'rollout_probs_diff_{key}']:.3g}" for key in ("mean", "max", "std"))
            lines.append(f"probability   {', '.join(spread)}")
            found = value.get("rollout_actor_probs_pearson_corr")
            pearson = "not defined (no spread)" if found is None else f"{found:.6f}"
            lines.append(f"Pearson       {pearson}; k3 KL {value['rollout_k3_kl']:.3g} nats")
        rows = [(part.what, f"{part.num_tokens:,}", f"{part.mean:.3g}", f"{part.largest:.3g}") for part in self.parts]
        rows += [(part.what, f"{part.num_tokens:,}", f"{part.mean:.3g}", f"{part.largest:.3g}") for part in more]
        head = ("gap by", "tokens", "mean", "max")
        widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
        for row in [head, *rows]:
            cells = [row[0].ljust(widths[0]), *(row[n].rjust(widths[n]) for n in range(1, len(head)))]
            lines.append("  ".join(cells))
        return lines

    def conclusion(self) -> list[str]:
        """Causes, what to do, and where there is something to explain the outliers, as lines for people."""
        causes = [self.cause, *([] if self.staleness is None else [self.staleness])]
        shown = [] if self.cause.name == NO_CAUSE else self.outliers
        return [line for cause in causes for line in cause_lines(cause)] + outlier_lines(shown)


def parity_report(batch: DataProto, setting: Setting, tokenizer: Any, num_outliers: int) -> ParityReport | None:
    """The report of ``batch``; None when one side has no log-probs or no token is trained.

    Args:
        batch: as for ``parity_tokens``, with ``prompts``, ``responses`` and ``uid``.
        setting: what the run asked of its generator.
        tokenizer: decodes tokens.
        num_outliers: how many tokens to show.
    """
    tokens = parity_tokens(batch)
    if tokens is None or not len(tokens):
        return None
    current = tokens.where(tokens.is_current)
    return ParityReport(
        num_tokens=len(current),
        metrics=gap_metrics(current),
        cause=find_cause(current, setting)
        if len(current)
        else Cause("unknown", "older weights drew every token", "Nothing."),
        staleness=_staleness(tokens),
        parts=parts(tokens),
        outliers=find_outliers(batch, current if len(current) else tokens, tokenizer, num_outliers),
    )


def cause_lines(cause: Cause) -> list[str]:
    """What was found and what to do, wrapped."""
    share = "" if cause.share is None else f" ({cause.share:.0%} of the squared gap)"
    return _wrapped(f"cause: {cause.name}{share}: {cause.evidence}.") + (
        [] if cause.advice == "Nothing." else _wrapped(f"what to do: {cause.advice}")
    )


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _staleness(tokens: ParityTokens) -> Cause | None:
    known = tokens.finite()
    old, new = known.where(~known.is_current), known.where(known.is_current)
    if not len(old):
        return None
    then = float(old.gap.mean())
    now = float(new.gap.mean()) if len(new) else 0.0
    if then <= _STALE_FROM * now:
        return None
    energy = old.gap.square().sum()
    total = float(energy + new.gap.square().sum())
    return Cause(
        "older weights",
        f"{len(old)} of {len(known)} tokens were drawn by weights of earlier steps; their gap is {then:.3g} nats on average, "
        f"that of the others {now:.2g}",
        "This is the price of the schedule, not a broken hand-over: trainer.v1.sampler.max_off_policy_threshold bounds it, "
        "algorithm.rollout_correction weighs it out.",
        float(energy) / total if total > 0 else None,
    )
