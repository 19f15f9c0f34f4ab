"""What makes generator and trainer differ: the first law that fits the gap of a step.

Each rule below looks for the trace that one kind of mistake leaves in the log-probs of the sampled tokens, which is all
that there is during training. The order is that of what the traces prove: a law that gives the gap token by token comes
before one about where it stands, and that before one about its size. Where none fits, other weights are left.

A gap is judged by what rounding would make of it: an error e in a logit moves the log-prob of its token by about
``(1 - p) e``, so gaps are divided by ``1 - p`` before they are compared with one another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from rl_core.trainer.ppo.parity_fit import fit_temperature
from rl_core.trainer.ppo.parity_stats import correlation
from rl_core.trainer.ppo.parity_tokens import ParityTokens

if TYPE_CHECKING:
    from torch import Tensor

    from rl_core.config import PPOTrainerConfig

NEGLIGIBLE: Final = 1e-4
"""Mean gap, in nats, up to which there is nothing to explain: float32 on both sides."""
NO_CAUSE: Final = "none"
"""Name of the cause where there is nothing to explain."""
ENOUGH: Final = 16
"""Fewest tokens that a law is fitted to."""
BFLOAT16_ROUNDOFF: Final = 2.0**-8
"""Largest relative error of rounding to 8 significant bits."""
_FLOOR: Final = 0.01
_MOST: Final = 0.8
"""Share of the squared gap that a law must account for."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What the run asked of its generator.

    Attributes:
        temperature: that the trainer divides by, and that responses should be drawn at.
        top_p: of the sampling.
        top_k: of the sampling.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1

    @classmethod
    def of(cls, config: PPOTrainerConfig) -> Setting:
        """That of a run."""
        rollout = config.actor_rollout_ref.rollout
        return cls(rollout.temperature, rollout.top_p, rollout.top_k)

    @property
    def is_filtered(self) -> bool:
        """Whether responses are drawn from a part of the distribution."""
        return self.top_p < 1 or self.top_k > 0


@dataclass(frozen=True, slots=True)
class Cause:
    """An explanation.

    Attributes:
        name: one or two words.
        evidence: what was measured.
        advice: what to do.
        share: of the squared gap that it accounts for; None where it speaks about the size alone.
    """

    name: str
    evidence: str
    advice: str
    share: float | None = None


Rule = Callable[[ParityTokens, Setting], Cause | None]


def find_cause(tokens: ParityTokens, setting: Setting) -> Cause:
    """The most likely cause of the gap of ``tokens``, those of the weights that are trained now."""
    known = tokens.finite()
    if len(known) < len(tokens):
        return _not_numbers(tokens)
    if len(known) and float(known.gap.mean()) <= NEGLIGIBLE:
        return Cause(NO_CAUSE, "the gap is what float32 on both sides leaves", "Nothing.")
    if len(known) < ENOUGH:
        return Cause("unknown", f"{len(known)} tokens are too few to tell", "Look at the tokens themselves.")
    for rule in _RULES:
        found = rule(known, setting)
        if found is not None:
            return found
    return _other_weights(known)


def _not_numbers(tokens: ParityTokens) -> Cause:
    sides = ((name, int((~side.isfinite()).sum())) for name, side in _sides(tokens))
    counted = " and ".join(f"{count} of the {name}" for name, count in sides if count)
    return Cause(
        "not a number",
        f"of {len(tokens)} log-probs, {counted} are no finite numbers",
        "That engine has failed: look at its precision (float16 overflows), and at the weights after the last update. A "
        "trainer's log-prob of minus infinity is a token that it holds for impossible.",
    )


def _sides(tokens: ParityTokens) -> tuple[tuple[str, Tensor], tuple[str, Tensor]]:
    return ("generator", tokens.rollout), ("trainer", tokens.trainer)


def _shift(tokens: ParityTokens, setting: Setting) -> Cause | None:
    """One side's log-probs stand beside their tokens."""
    follows = (tokens.row[1:] == tokens.row[:-1]) & (tokens.position[1:] == tokens.position[:-1] + 1)
    if int(follows.sum()) < ENOUGH:
        return None
    here, ahead = tokens.where(_padded(follows, right=True)), tokens.where(_padded(follows, right=False))
    own = float(here.gap.square().sum())
    shifted = {
        "the generator's log-prob of a token is the trainer's of the next one": here.rollout - ahead.trainer,
        "the generator's log-prob of a token is the trainer's of the one before": ahead.rollout - here.trainer,
    }
    what, left = min(((text, float(value.square().sum())) for text, value in shifted.items()), key=lambda item: item[1])
    if not left <= 0.1 * own:
        return None
    return Cause(
        "shifted by one",
        what,
        "Look at how the engine gathers log-probs: row t of the logits speaks about token t + 1.",
        1 - left / own,
    )


def _padded(follows: Tensor, *, right: bool) -> Tensor:
    end = follows.new_zeros(1)
    return torch.cat([follows, end] if right else [end, follows])


def _temperature(tokens: ParityTokens, setting: Setting) -> Cause | None:
    """The generator's log-probs are the trainer's at another temperature."""
    fit = fit_temperature(tokens)
    if not (fit.share >= _MOST and 0.25 <= fit.ratio <= 4 and abs(fit.ratio - 1) >= 0.005):
        return None
    found = setting.temperature / fit.ratio
    how = "those" if fit.is_measured else "(by the slope of the gap over the trainer's, roughly) those"
    evidence = (
        f"the generator's log-probs are {how} at temperature {found:.3g}; the trainer uses {setting.temperature:g}"
    )
    if abs(math.log(found)) < abs(math.log(setting.temperature)) / 4:
        advice = (
            "The generator reports log-probs of the raw logits. Let it report those of the distribution that it draws from "
            "(actor_rollout_ref.rollout.logprobs_mode=processed_logprobs)."
        )
    else:
        advice = (
            "One side does not use actor_rollout_ref.rollout.temperature: look for a default of the engine's own "
            "(generation_config.json), or for logits that the model itself scales."
        )
    if not fit.is_measured:
        advice += " actor_rollout_ref.actor.calculate_entropy=true makes this exact, as 'rl parity' does."
    return Cause("temperature", evidence, advice, fit.share)


def _filtered(tokens: ParityTokens, setting: Setting) -> Cause | None:
    """What is left of a distribution after a cut is normalised: no token gets less likely, and none much more."""
    ratio = tokens.log_ratio
    above = float(ratio.clamp(min=0).square().sum()) / float(ratio.square().sum())
    if above < 0.99:
        return None
    high = float(ratio.quantile(0.99)) if len(ratio) < 2**20 else float(ratio.max())
    if setting.is_filtered:
        bound = -math.log(setting.top_p) if setting.top_p < 1 and setting.top_k <= 0 else math.inf
        if high > 1.2 * bound + 0.02:
            return None
        asked = ", ".join(
            text
            for text, is_on in (
                (f"top_p {setting.top_p:g}", setting.top_p < 1),
                (f"top_k {setting.top_k}", setting.top_k > 0),
            )
            if is_on
        )
        return Cause(
            "filtered sampling",
            f"responses are drawn with {asked}: the generator's probabilities are those of the policy over what is kept",
            "Train with actor_rollout_ref.rollout.top_p=1 and top_k=-1; the gap then says something about the weights.",
            above,
        )
    if high > math.log(2):
        return None
    kept = math.exp(-float(ratio.mean()))
    return Cause(
        "smaller vocabulary",
        f"every token is more likely for the generator, by {float(ratio.mean()):.3g} nats on average: as if it drew from "
        f"{kept:.1%} of the distribution",
        "It leaves tokens out that the trainer counts: top_p, top_k or min_p by default (generation_config.json), forbidden "
        "tokens (min_tokens, bad words), or rows of the output layer beyond the vocabulary, which only the trainer includes.",
        above,
    )


def _some_rows(tokens: ParityTokens, setting: Setting) -> Cause | None:
    """A part of the responses has all of the gap."""
    rows, index = tokens.row.unique(return_inverse=True)
    if len(rows) < 4:
        return None
    counts = torch.bincount(index).double()
    sizes = (torch.bincount(index, weights=_judged(tokens)) / counts).clamp(min=1e-9)
    order = sizes.argsort()
    steps = (sizes[order][1:] / sizes[order][:-1]).log()
    cut = int(steps.argmax()) + 1
    if float(steps.max()) < math.log(10):
        return None
    wrong = torch.zeros_like(sizes, dtype=torch.bool)
    wrong[order[cut:]] = True
    share = _share(tokens, wrong[index])
    if share < _MOST:
        return None
    mean_wrong, mean_right = (float(tokens.gap[keep].mean()) for keep in (wrong[index], ~wrong[index]))
    return Cause(
        "stale weights in part",
        f"{int(wrong.sum())} of {len(rows)} responses have the gap ({mean_wrong:.3g} nats on average), the others "
        f"{mean_right:.2g}; the first are rows {', '.join(map(str, rows[wrong][:5].tolist()))}",
        "One replica of the generator samples from other weights than the others, or from an adapter that they lack: look at "
        "rollout/weight_version and at its log. Rows with something of their own (images, cut prompts) look the same.",
        share,
    )


def _first_token(tokens: ParityTokens, setting: Setting) -> Cause | None:
    """Only what follows the prompt directly is wrong."""
    first = tokens.position == 0
    if not (first.any() and int((~first).sum()) >= ENOUGH):
        return None
    judged = _judged(tokens)
    share, times = _share(tokens, first), float(judged[first].mean()) / max(float(judged[~first].mean()), 1e-9)
    if share < _MOST or times < 5:
        return None
    return Cause(
        "first token",
        f"the gap stands at the first token of the responses: {float(tokens.gap[first].mean()):.3g} nats on average there, "
        f"{float(tokens.gap[~first].mean()):.2g} behind",
        "The pass over the prompt differs from the later ones: look at chunked prefill and prefix caching of the engine, and "
        "at logits of the prompt's last token.",
        share,
    )


def _grows(tokens: ParityTokens, setting: Setting) -> Cause | None:
    """The further a token is from the prompt, the larger its gap."""
    behind = tokens.where(tokens.position > 0)
    if len(behind) < ENOUGH or int(behind.position.max()) < 8:
        return None
    judged, end = _judged(behind), int(behind.position.max()) + 1
    index = ((behind.position - 1) * 6 // (end - 1)).clamp(max=5)
    counts = torch.bincount(index, minlength=6).double()
    if not bool((counts > 0).all()):
        return None
    means = torch.bincount(index, weights=judged, minlength=6) / counts
    rise = correlation(means, torch.arange(6, dtype=torch.float64))
    times = float((means[4] + means[5]) / (means[0] + means[1]).clamp(min=1e-9))
    if rise is None or rise < 0.7 or times < 3:
        return None
    large = int((means > 3 * means[0]).nonzero()[0]) if bool((means > 3 * means[0]).any()) else 0
    start = 1 + large * (end - 1) // 6
    return Cause(
        "position",
        f"the gap grows along the response, {times:.2g} times from its first third to its last; it is larger from about token "
        f"{start + 1} on",
        "The engines do not see the same past: positions (left padding without position ids, rope scaling, another longest "
        "length), a key-value cache that is overwritten, quantised or windowed, or a sliding window on one side only.",
        _share(behind, behind.position >= start),
    )


def _rounded(tokens: ParityTokens, setting: Setting) -> Cause | None:
    """The log-probs themselves have been rounded on their way."""
    for name, side in _sides(tokens):
        values = side[side.abs() > 1e-6]
        if len(values) < ENOUGH:
            continue
        for dtype, roundoff in ((torch.bfloat16, BFLOAT16_ROUNDOFF), (torch.float16, 2.0**-11)):
            exact = float((values.to(dtype).double() == values).double().mean())
            within = tokens.gap <= 1.05 * roundoff * side.abs() + NEGLIGIBLE
            if exact > 0.999 and float(within.double().mean()) > 0.9:
                return Cause(
                    "precision",
                    f"the {name}'s log-probs are rounded to {str(dtype).removeprefix('torch.')}, and that is all",
                    f"Let the {name} return log-probs in float32.",
                )
    return None


def _precision(tokens: ParityTokens, setting: Setting) -> Cause | None:
    """No larger than what logits in bfloat16 make of it, and to both sides."""
    judged, ratio = _judged(tokens), tokens.log_ratio
    # The logit of a token lies at most about so far below the largest one; its last digit is worth that much.
    vocabulary = max(int(tokens.token.max()) + 1, 2)
    expected = BFLOAT16_ROUNDOFF * (math.log(vocabulary) + tokens.trainer.abs())
    size, scale = float(judged.square().mean().sqrt()), float(expected.square().mean().sqrt())
    above = float(ratio.clamp(min=0).square().sum()) / float(ratio.square().sum())
    if size > 2 * scale or not 0.1 <= above <= 0.9:
        return None
    return Cause(
        "precision",
        f"the gap goes to both sides and is {size:.2g} nats for an unlikely token, where logits in bfloat16 give about "
        f"{scale:.2g}",
        "Different kernels in bfloat16 agree no better. float32 on both sides (rollout.dtype, the actor's dtype) shows whether "
        "something else is behind it; a very small difference of weights looks the same. algorithm.rollout_correction lives "
        "with it.",
    )


def _other_weights(tokens: ParityTokens) -> Cause:
    found = correlation(tokens.rollout, tokens.trainer)
    correlated = "" if found is None else f" (log-probs correlate at {found:.3g})"
    return Cause(
        "other weights",
        f"the gap follows no temperature, filter, position or rounding{correlated}",
        "The generator does not hold the trainer's weights: a tensor was not handed over or under another name (tied "
        "embeddings, fused or expert weights, adapters), is quantised, or one side has dropout on.",
    )


def _judged(tokens: ParityTokens) -> Tensor:
    """[N] the gap over ``1 - p``: of which size the error in the logits is."""
    return tokens.gap / (1 - tokens.trainer.exp() + _FLOOR)


def _share(tokens: ParityTokens, keep: Tensor) -> float:
    """Of the squared gap, that at ``keep``."""
    energy = tokens.gap.square()
    return float(energy[keep].sum() / energy.sum())


_RULES: Final[tuple[Rule, ...]] = (
    _shift,
    _rounded,
    _temperature,
    _first_token,
    _filtered,
    _grows,
    _some_rows,
    _precision,
)
