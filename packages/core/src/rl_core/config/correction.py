"""``algorithm.rollout_correction.*`` read and judged: bounds, rules, and what the keys cannot do together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from rl_core.errors import ConfigError
from rl_core.plugins import AdvantageRecord

if TYPE_CHECKING:
    from rl_core.config.algorithm import RolloutCorrectionConfig
    from rl_core.config.compose import Config
    from rl_core.config.root import PPOTrainerConfig

Scope = Literal["token", "seq_sum", "seq_mean", "seq_max"]
Estimator = Literal["k1", "k2", "k3"]

_KEY: Final = "algorithm.rollout_correction"

RULES: Final[dict[str, tuple[Scope, Estimator]]] = {
    "token_k1": ("token", "k1"),
    "token_k2": ("token", "k2"),
    "token_k3": ("token", "k3"),
    "seq_sum_k1": ("seq_sum", "k1"),
    "seq_sum_k2": ("seq_sum", "k2"),
    "seq_sum_k3": ("seq_sum", "k3"),
    "seq_mean_k1": ("seq_mean", "k1"),
    "seq_mean_k2": ("seq_mean", "k2"),
    "seq_mean_k3": ("seq_mean", "k3"),
    "seq_max_k2": ("seq_max", "k2"),
    "seq_max_k3": ("seq_max", "k3"),
}
"""Name of a rejection rule -> what it measures. There is no ``seq_max_k1``: k1 has a sign, a maximum sees one side."""


@dataclass(frozen=True)
class Bounds:
    """Bounds of a ratio; without a lower one, weights are cut at the upper."""

    lower: float | None
    upper: float


@dataclass(frozen=True)
class Rule:
    """One rejection rule; ``lower`` is None but for ``k1``."""

    scope: Scope
    estimator: Estimator
    lower: float | None
    upper: float


@dataclass(frozen=True)
class Correction:
    """The section, parsed."""

    level: Literal["token", "sequence"] | None
    bounds: Bounds
    should_normalize: bool
    rules: tuple[Rule, ...]
    loss_type: str


def parse_correction(config: RolloutCorrectionConfig) -> Correction:
    """Read the section.

    Raises:
        ConfigError: a bound is no number or cannot work, a rule is unknown or given twice, or the bounds are not one for
            all rules or one each.
    """
    bounds = Bounds(None, math.inf)
    if config.rollout_is is not None:
        bounds = weight_bounds(config.rollout_is_threshold)
    return Correction(
        level=cast("Literal['token', 'sequence'] | None", config.rollout_is),
        bounds=bounds,
        should_normalize=config.rollout_is is not None and config.rollout_is_batch_normalize,
        rules=rejection_rules(config.rollout_rs, config.rollout_rs_threshold),
        loss_type=config.loss_type,
    )


def weight_bounds(threshold: object) -> Bounds:
    """Bounds of importance weights: a number cuts them, ``lower_upper`` sets those outside to 0.

    Raises:
        ConfigError: neither of the two; a cap below 1; bounds that do not hold 1 between them.
    """
    key = f"{_KEY}.rollout_is_threshold"
    lower, upper = _bounds(key, threshold)
    _require_one_inside(key, threshold, 1.0 if lower is None else lower, upper)
    return Bounds(lower, upper)


def rejection_rules(names: str | None, thresholds: object) -> tuple[Rule, ...]:
    """Rules of a comma-separated list, each with its bounds; none for null.

    Args:
        names: for example ``token_k1,seq_max_k2``.
        thresholds: one for all, or one each: a number, text with commas, or a list.

    Raises:
        ConfigError: as for ``parse_correction``.
    """
    if names is None:
        return ()
    asked = _parts(names)
    unknown = [name for name in asked if name not in RULES]
    if unknown or not asked or len(set(asked)) < len(asked):
        found = f"unknown: {', '.join(unknown)}" if unknown else f"found {names!r}"
        msg = f"{_KEY}.rollout_rs takes rules, each once, from {', '.join(RULES)}; {found}."
        raise ConfigError(msg)
    given: Sequence[object] = thresholds if isinstance(thresholds, (list, tuple)) else _parts(thresholds)
    if len(given) not in (1, len(asked)):
        msg = (
            f"{_KEY}.rollout_rs names {len(asked)} rules, which need one bound for all or {len(asked)} bounds in "
            f"{_KEY}.rollout_rs_threshold; found {len(given)} ({thresholds!r})."
        )
        raise ConfigError(msg)
    each = list(given) * len(asked) if len(given) == 1 else given
    return tuple(_rule(name, threshold) for name, threshold in zip(asked, each, strict=True))


def correction_findings(config: Config) -> Iterator[tuple[Literal["error", "warning"], str]]:
    """What is wrong or surprising about the section and ``actor.use_rollout_log_probs``."""
    tree, keys = config.tree, config.tree.algorithm.rollout_correction
    try:
        parse_correction(keys)
    except ConfigError as error:
        yield "error", str(error)
        return
    corrects = keys.rollout_is is not None or keys.rollout_rs is not None
    if tree.actor_rollout_ref.actor.use_rollout_log_probs and corrects and not keys.bypass_mode:
        yield (
            "error",
            f"actor_rollout_ref.actor.use_rollout_log_probs makes the generator's log-probs the old ones, so {_KEY} would "
            f"compare them with themselves. Leave it out, or set {_KEY}.bypass_mode=true to correct inside the loss.",
        )
    if keys.bypass_mode and keys.rollout_is_batch_normalize:
        yield (
            "error",
            f"{_KEY}.rollout_is_batch_normalize needs the weights of the whole batch, but with {_KEY}.bypass_mode they "
            "arise in the loss, from the policy as it is at each optimizer step and from a part of the rows. Turn one off.",
        )
    rollout = tree.actor_rollout_ref.rollout
    if (rollout.top_p < 1 or rollout.top_k > 0) and (corrects or keys.bypass_mode):
        yield (
            "warning",
            f"{_KEY} compares the policy with a generator whose distribution is cut off (rollout.top_p {rollout.top_p:g}, "
            f"rollout.top_k {rollout.top_k}): ratios are off by the mass that is cut off, even with equal weights.",
        )
    yield from _without_rescoring(config)


def _without_rescoring(config: Config) -> Iterator[tuple[Literal["error", "warning"], str]]:
    tree, keys = config.tree, config.tree.algorithm.rollout_correction
    switch = old_log_prob_switch(tree)
    if switch is None:
        return
    estimator = config.records.get("algorithm.adv_estimator")
    needs = estimator.needs if isinstance(estimator, AdvantageRecord) else frozenset()
    if "sum_pi_squared" in needs:
        yield (
            "error",
            f"advantage estimator {tree.algorithm.adv_estimator!r} needs the sum of squared probabilities, which comes from "
            f"the pass that {switch} leaves out. Turn it off.",
        )
    if keys.bypass_mode and keys.rollout_rs is not None and "group" in needs:
        yield (
            "warning",
            f"with {_KEY}.bypass_mode, {_KEY}.rollout_rs rejects inside the loss, after the advantages: a rejected response "
            "has counted in its group's baseline. Without bypass_mode it does not.",
        )
    if tree.trainer.parity.max_logprob_gap is not None:
        yield (
            "warning",
            f"trainer.parity.max_logprob_gap is held at the run's first step only: {switch} leaves out the pass that "
            "re-scores the responses of later steps.",
        )


def old_log_prob_switch(tree: PPOTrainerConfig) -> str | None:
    """The key that makes the generator's log-probs the old ones, so that nothing is re-scored; None re-scores."""
    if tree.algorithm.rollout_correction.bypass_mode:
        return f"{_KEY}.bypass_mode"
    if tree.actor_rollout_ref.actor.use_rollout_log_probs:
        return "actor_rollout_ref.actor.use_rollout_log_probs"
    return None


def _rule(name: str, threshold: object) -> Rule:
    scope, estimator = RULES[name]
    key = f"{_KEY}.rollout_rs_threshold for {name}"
    if threshold is None:
        msg = f"{_KEY}.rollout_rs names {name}, but {_KEY}.rollout_rs_threshold is null. Give its bound."
        raise ConfigError(msg)
    lower, upper = _bounds(key, threshold)
    if estimator == "k1":
        if lower is None:
            lower = 1.0 / upper
        _require_one_inside(key, threshold, lower, upper)
        return Rule(scope, estimator, lower, upper)
    if lower is not None:
        msg = f"{key} is the largest {estimator} that is kept, one number; found {threshold!r}."
        raise ConfigError(msg)
    return Rule(scope, estimator, None, upper)


def _bounds(key: str, threshold: object) -> tuple[float | None, float]:
    """(lower or None, upper), both above 0 and finite."""
    texts = str(threshold).strip().split("_") if isinstance(threshold, str) else [threshold]
    try:
        # bool is a number to Python, and "true" is a slip here.
        numbers = [math.nan if isinstance(text, bool) else float(cast("Any", text)) for text in texts]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) not in (1, 2) or not all(math.isfinite(number) and number > 0 for number in numbers):
        msg = f"{key} takes a number above 0, or two as lower_upper, for example 0.5_2.0; found {threshold!r}."
        raise ConfigError(msg)
    return (None, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])


def _require_one_inside(key: str, threshold: object, lower: float, upper: float) -> None:
    if lower <= 1.0 <= upper:
        return
    msg = (
        f"{key} bounds a ratio that is 1 where trainer and generator agree, so 1 must lie within; found {threshold!r}, "
        f"bounds {lower:g} and {upper:g}. Two bounds need their decimal points, or quotes: 0.5_2 reads as the number 0.52."
    )
    raise ConfigError(msg)


def _parts(given: object) -> list[Any]:
    """Parts of a text between its commas; anything else is one part."""
    return [part.strip() for part in given.split(",") if part.strip()] if isinstance(given, str) else [given]
