"""What this package registers; nothing is imported that a part needs."""

from __future__ import annotations

from collections.abc import Iterable

from rl_core import hookimpl
from rl_core.plugins.records import AdvantageRecord, RecipeRecord, Record, RewardManagerRecord, RewardModelRecord


@hookimpl
def rl_plugins() -> Iterable[Record]:
    """The recipes, and the parts that two of them need."""
    return (*_recipes(), *_parts())


def _recipes() -> tuple[Record, ...]:
    targets = {
        "grpo": ("presets:grpo", "GRPO as in its paper: group advantages, KL term in the loss."),
        "dr_grpo": ("presets:dr_grpo", "GRPO without its two biases: no division by spread or length."),
        "gspo": ("presets:gspo", "One importance ratio a response, clipped tightly."),
        "cispo": ("presets:cispo", "The importance weight is clipped, the gradient of no token is."),
        "dapo": ("dapo.recipe:dapo", "Higher upper clip, dynamic sampling, loss by token, overlong penalty."),
        "prime": ("prime.recipe:prime", "Implicit process rewards of a model that learns from outcomes."),
    }
    return tuple(
        RecipeRecord(name=name, target=f"rl_recipes.{target}", summary=summary)
        for name, (target, summary) in targets.items()
    )


def _parts() -> tuple[Record, ...]:
    return (
        RewardManagerRecord(
            name="dapo",
            target="rl_recipes.dapo.manager:DapoRewardManager",
            summary="Another manager's scores, minus DAPO's penalty for responses that come near the length limit.",
        ),
        RewardModelRecord(
            name="prime",
            target="rl_recipes.prime.worker:PrimeRewardModelWorker",
            summary="A language model against its reference: a reward for each token, learned from outcomes.",
            trained=True,
            gives="process",
            config="rl_recipes.prime.config:ImplicitRewardConfig",
            mount=("reward_model",),
        ),
        AdvantageRecord(
            name="prime",
            target="rl_recipes.prime.advantage:prime",
            summary="Process and outcome rewards, each against the other responses to the prompt.",
            needs=frozenset({"group", "process_rewards"}),
            config="rl_recipes.prime.config:PrimeAdvantageConfig",
            mount=("algorithm",),
        ),
    )
