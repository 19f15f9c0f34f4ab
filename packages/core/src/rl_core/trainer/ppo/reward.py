"""The reward line of the loop: collect a score for every response, leave out what has none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import torch
from rl_dataproto import DataProto, Jagged

from rl_core.config.roles import scores_by_model
from rl_core.contracts.reward import RewardManager, RewardResult, parse_reward
from rl_core.errors import ConfigError, MissingRewardError, PluginNotFoundError, ShapeError
from rl_core.metrics import Metric
from rl_core.plugins.from_file import load_from_file
from rl_core.plugins.records import NEEDS_GROUND_TRUTH
from rl_core.scoring.function import FileFunction, FunctionsBySource, RewardCallable
from rl_core.trainer.ppo.reward_metrics import group_metrics, reward_metrics
from rl_core.workers.reward_model import RM_TRUNCATED

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig
    from rl_core.data.prompts import PromptDataset
    from rl_core.plugins import Registry

DEFAULT_FUNCTION_NAME: Final = "compute_score"
"""``custom_reward_function.name`` where nobody has chosen one."""

REWARD_RESULT_KEY: Final = "reward_result"
"""Object column with each row's ``RewardResult``, where the sampler has scored the batch already."""

UNTRAINED_KEY: Final = "untrained"
"""Bool column [B], True for rows of which no token is learned, where a ``RewardResult`` says so."""

SCORES_ITSELF: Final = "scores_itself"
"""Capability of a reward manager that needs no reward function."""


def score_rows(batch: DataProto, manager: RewardManager, reward_model_wg: Any = None) -> list[RewardResult]:
    """The reward of each row.

    Args:
        batch: responses with the columns of their prompts.
        manager: asked where there is no reward model.
        reward_model_wg: worker group of the reward model.
    """
    return manager.collect(batch) if reward_model_wg is None else scored_rows(reward_model_wg.compute_rm_score(batch))


def taken_results(batch: DataProto) -> list[RewardResult] | None:
    """The results that the sampler has, taken out of the batch; None where it has none."""
    if REWARD_RESULT_KEY not in batch.non_tensor_batch:
        return None
    return list(batch.pop(non_tensor_batch_keys=[REWARD_RESULT_KEY]).non_tensor_batch[REWARD_RESULT_KEY])


def scored_rows(scored: DataProto) -> list[RewardResult]:
    """The reward model's scores, jagged ``rm_scores`` with each sequence's score on its last token.

    One that is not finite is missing. Where the batch tells which conversations were cut, ``rm_truncated`` is logged.
    """
    scores = [float(row[-1]) for row in scored.batch["rm_scores"].unbind()]
    if RM_TRUNCATED not in scored.batch.keys():  # noqa: SIM118 - a TensorDict
        return [parse_reward(score) for score in scores]
    cut = scored.batch[RM_TRUNCATED].tolist()
    return [
        parse_reward({"score": score, RM_TRUNCATED: int(is_cut)}) for score, is_cut in zip(scores, cut, strict=True)
    ]


def load_reward_function(config: PPOTrainerConfig, registry: Registry) -> RewardCallable:
    """The reward function that the configuration names: a file of the user's, or a plugin's by its name or ``data_source``.

    Raises:
        ConfigError: the file or the function in it does not exist.
        PluginError: no plugin has a reward of that name, or it cannot be used here.
    """
    custom = config.custom_reward_function
    if custom.path is None:
        sandbox = config.reward_model.sandbox_fusion
        settings = {
            "sandbox_fusion": {
                "url": sandbox.url,
                "max_concurrent": sandbox.max_concurrent,
                "memory_limit_mb": sandbox.memory_limit_mb,
                "allow_weaker": sandbox.allow_weaker,
            }
        }
        by_source = FunctionsBySource(registry, settings, custom.reward_kwargs)
        return by_source if custom.name == DEFAULT_FUNCTION_NAME else by_source.for_source(custom.name)
    function = FileFunction(str(Path(custom.path).expanduser().resolve()), custom.name, dict(custom.reward_kwargs))
    function.plain()  # its faults are known before a model is loaded
    return function


def attach_rewards(
    batch: DataProto, results: Sequence[RewardResult], max_missing_fraction: float
) -> tuple[DataProto, dict[str, Metric]]:
    """Put scores on the last trained token; leave out rows whose reward is missing.

    Args:
        batch: jagged ``response_mask`` with a trained token in every row.
        results: one for each row.
        max_missing_fraction: above this share of missing rewards the run stops.

    Returns:
        The rows with a reward, with jagged float32 ``token_level_scores``, an object column ``reward_extra/<key>`` for each
        key of ``reward_extra_info`` and, if rows are not to be trained on, bool ``untrained``; and the counts.

    Raises:
        MissingRewardError: too many rewards are missing; quotes the first errors.
        ShapeError: a scored row has no trained token.
    """
    num_missing = require_rewards(results, max_missing_fraction)
    rows = np.array([row for row, result in enumerate(results) if result.score is not None], dtype=np.int64)
    kept = batch.select_idxs(rows) if num_missing else batch.select()
    kept_results = [results[row] for row in rows]
    scores = torch.tensor([cast("float", result.score) for result in kept_results], dtype=torch.float32)
    extra_keys = sorted({key for result in kept_results for key in result.extra})
    tensors = {"token_level_scores": _on_last_token(kept.batch["response_mask"], scores)}
    untrained = torch.tensor([not result.is_trained for result in kept_results], dtype=torch.bool)
    if untrained.any():
        tensors[UNTRAINED_KEY] = untrained
    scored = DataProto.from_dict(
        tensors=tensors,
        non_tensors={
            f"reward_extra/{key}": np.array([result.extra.get(key) for result in kept_results], dtype=object)
            for key in extra_keys
        },
    )
    columns = batch.non_tensor_batch
    metrics = reward_metrics(results, columns.get("data_source")) | group_metrics(results, columns.get("uid"))
    metrics |= {"reward/missing": Metric(num_missing, "sum")} | failure_counts(results)
    if untrained.any():
        metrics["reward/untrained"] = Metric(int(untrained.sum()), "sum")
    return kept.union(scored), metrics


def failure_counts(results: Iterable[RewardResult]) -> dict[str, Metric]:
    """``reward/<kind>`` for each kind of failure that occurred."""
    counts = Counter(result.failure for result in results if result.failure is not None)
    return {f"reward/{failure}": Metric(count, "sum") for failure, count in counts.items()}


def require_rewards(results: Sequence[RewardResult], max_missing_fraction: float) -> int:
    """The number of missing rewards, if it can be tolerated.

    Raises:
        MissingRewardError: too many rewards are missing; quotes the first errors.
    """
    missing = [result.error for result in results if result.score is None]
    if len(missing) > max_missing_fraction * len(results) or len(missing) == len(results):
        msg = (
            f"{len(missing)} of {len(results)} rewards are missing (trainer.max_failed_reward_fraction is "
            f"{max_missing_fraction}). First reasons: {'; '.join(sorted({str(text) for text in missing})[:3])}"
        )
        raise MissingRewardError(msg)
    return len(missing)


def _on_last_token(response_mask: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """Jagged float32: each row's score on the last token that the policy emitted, 0.0 elsewhere.

    Raises:
        ShapeError: a row has no such token.
    """
    mask = Jagged.of(response_mask)
    last = mask.offsets[1:] - 1
    # Most responses end with a token of the policy's, which is seen without a look at all others.
    if bool((mask.offsets.diff() == 0).any()) or not bool(mask.values[last].all()):
        emitted = mask.values.nonzero().squeeze(1)
        ends = torch.searchsorted(emitted, mask.offsets)
        empty = (ends.diff() == 0).nonzero().squeeze(1)
        if len(empty):
            msg = f"row {int(empty[0])} has a score, but response_mask has no token of the policy's to put it on"
            raise ShapeError(msg)
        last = emitted[ends[1:] - 1]
    values = torch.zeros(len(mask.values), dtype=torch.float32)
    values[last] = scores
    return mask.with_values(values).close()


def reward_manager(config: PPOTrainerConfig, tokenizer: Any, registry: Registry) -> RewardManager:
    """The configured reward manager, a class of the user's or a plugin, with the configured function.

    Raises:
        ConfigError: the file of the class or of the function cannot be used, or the function needs what nobody has.
    """
    module = config.reward_model.reward_manager_module
    if module.path is None:
        found = registry.load("reward_manager", config.reward_model.reward_manager)
    elif module.name is None:
        msg = f"reward_model.reward_manager_module.path is {module.path}, but .name is null; give the name of the class in it"
        raise ConfigError(msg)
    else:
        found = load_from_file(Path(module.path), module.name, "reward_model.reward_manager_module")
    return cast("Callable[..., RewardManager]", found)(load_reward_function(config, registry), tokenizer, config)


def check_rewards_exist(config: PPOTrainerConfig, datasets: Iterable[PromptDataset], registry: Registry) -> None:
    """Where rows choose their reward, each of them must find one, and what an installed reward compares with must be there.

    Raises:
        ConfigError: a data source has no reward, or a row no ground truth; see ``check_data_sources``, ``check_ground_truth``.
    """
    manager = registry.record("reward_manager", config.reward_model.reward_manager)
    if SCORES_ITSELF in manager.capabilities and config.reward_model.reward_manager_module.path is None:
        return
    custom = config.custom_reward_function
    if custom.path is not None or scores_by_model(config, registry):
        return
    chosen = None if custom.name == DEFAULT_FUNCTION_NAME else custom.name
    for dataset in datasets:
        if chosen is None:
            check_data_sources(dataset.data_sources(), registry)
        check_ground_truth(dataset, chosen, registry)


def check_ground_truth(
    rows: PromptDataset | Sequence[Mapping[str, Any]], chosen: str | None, registry: Registry
) -> None:
    """What an installed reward compares with must be there, found before a model is loaded.

    Args:
        rows: items with ``data_source``, ``reward_model`` and ``index``.
        chosen: the reward of every row; None where each row's ``data_source`` chooses.
        registry: knows the installed rewards.

    Raises:
        ConfigError: a row has none: names it, its reward, and where the right answer belongs.
    """
    needy: dict[str, bool] = {}
    for number in range(len(rows)):
        row = rows[number]
        name = row["data_source"] if chosen is None else chosen
        if name not in needy:
            needy[name] = NEEDS_GROUND_TRUTH in registry.record("reward", name).capabilities
        if needy[name] and (row.get("reward_model") or {}).get("ground_truth") is None:
            msg = (
                f"row {row.get('index', number)} has no ground truth, with which the reward {name!r} compares. Put the right "
                'answer into the row\'s column reward_model: {"ground_truth": ...}.'
            )
            raise ConfigError(msg)


def check_data_sources(sources: Mapping[str, int], registry: Registry) -> None:
    """Every ``data_source`` of the data must have a reward, found before a model is loaded.

    Args:
        sources: data source -> first row that has it.
        registry: knows the installed rewards.

    Raises:
        ConfigError: one is unknown: names it, its row, and what is installed.
        PluginError: its reward is installed, but cannot be used here.
    """
    for source, row in sources.items():
        try:
            registry.require("reward", source if isinstance(source, str) else "")
        except PluginNotFoundError as error:
            known = [claim for record in registry.records("reward") for claim in record.claims]
            close = get_close_matches(str(source), known, n=3)
            meant = f" Did you mean: {', '.join(close)}?" if close else ""
            what = "no data_source" if source is None else f"data_source {source!r}, for which no reward is installed"
            msg = (
                f"row {row} has {what}.{meant} Installed: "
                f"{', '.join(known) or 'none'}. Name one of them with custom_reward_function.name, a function of your own "
                "with custom_reward_function.path, or install a package that scores it."
            )
            raise ConfigError(msg) from error
