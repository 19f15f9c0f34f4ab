"""The sampler of a run: its schedule, and around it what holds in every schedule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rl_core.contracts.sampler import Sampler
from rl_core.errors import ConfigError
from rl_core.plugins.from_file import load_from_file
from rl_core.trainer.ppo.sampler_filter import FilterGroups
from rl_core.trainer.ppo.sampler_greedy import GreedyBaseline
from rl_core.trainer.ppo.sampler_refill import RefillingSampler

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.config import PPOTrainerConfig
    from rl_core.contracts.reward import RewardResult
    from rl_core.contracts.sampler import BatchSource, RolloutWorkers
    from rl_core.data.loader import PromptLoader
    from rl_core.plugins import AdvantageRecord, Registry

CUSTOM = "trainer.v1.sampler.custom_sampler"


def build_sampler(
    config: PPOTrainerConfig,
    loader: PromptLoader,
    workers: RolloutWorkers,
    score: Callable[[DataProto], list[RewardResult]],
    registry: Registry,
    submit: Callable[[DataProto], None] | None = None,
) -> BatchSource:
    """The first line of the loop.

    Args:
        config: the run's configuration.
        loader: draws prompts.
        workers: the actor-rollout worker group.
        score: the reward of each row.
        registry: finds the schedule and the advantage estimator.
        submit: begins to score responses that are whole while others still generate.

    Raises:
        ConfigError: the sampler class of the user's file cannot be used.
    """
    source: BatchSource = _schedule(config, registry)(config, loader, workers)
    source.on_responses = submit
    if config.actor_rollout_ref.rollout.greedy_baseline:
        estimator = cast("AdvantageRecord", registry.record("advantage", config.algorithm.adv_estimator))
        source = GreedyBaseline(source, config, score, is_needed="greedy_baseline" in estimator.needs)
    if config.algorithm.filter_groups.enable:
        source = FilterGroups(source, config, score)
    return source


def _schedule(config: PPOTrainerConfig, registry: Registry) -> Callable[..., Sampler]:
    """Makes the schedule's sampler from configuration, loader and workers."""
    mode, keys = config.trainer.v1.trainer_mode, config.trainer.v1.sampler
    custom_sampler = keys.custom_sampler
    if custom_sampler.path is not None:
        made = _custom_class(custom_sampler.path, custom_sampler.name)
        return lambda *arguments: made.from_workers(*arguments, **keys.sampler_kwargs)
    if mode == "sync" and keys.sync_refill_failed_groups:
        return RefillingSampler.from_workers
    return cast("type[Sampler]", registry.load("sampler", mode)).from_workers


def _custom_class(path: str, name: str | None) -> Any:
    if name is None:
        msg = f"{CUSTOM}.path is {path}, but {CUSTOM}.name is not set. Name the class in it."
        raise ConfigError(msg)
    found = load_from_file(Path(path), name, CUSTOM)
    if not (isinstance(found, type) and issubclass(found, Sampler)):
        msg = f"{CUSTOM}.name is {name!r}: {path} has no subclass of rl_core.contracts.sampler.Sampler of that name"
        raise ConfigError(msg)
    return found
