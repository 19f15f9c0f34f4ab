"""The reward line of the loop: collect a score for every response, leave out what has none.

``NaiveRewardManager`` scores one row after the other in the controller's process: right for cheap rules. A score that misses
its deadline is missing; the thread that computes it cannot be ended, only left behind.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from rl_dataproto import DataProto, jagged_from_rows

from rl_core.contracts.reward import RewardManager, RewardResult, parse_reward
from rl_core.errors import ConfigError, MissingRewardError
from rl_core.metrics import Metric

if TYPE_CHECKING:
    from rl_core.config import PPOTrainerConfig
    from rl_core.data.prompts import PromptDataset
    from rl_core.plugins import Registry

RewardCallable = Callable[..., Any]


class _Scorer:
    """A thread that runs calls of user code one after the other, and can be left behind when one of them hangs."""

    def __init__(self) -> None:
        """Start the thread; it is a daemon, so one that hangs does not keep the process alive."""
        self._calls: queue.SimpleQueue[Callable[[], RewardResult] | None] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[RewardResult] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="reward", daemon=True).start()

    def run(self, call: Callable[[], RewardResult], timeout_s: float) -> RewardResult | None:
        """The result of ``call``; None if it does not come in time, and then this scorer is of no more use."""
        self._calls.put(call)
        try:
            return self._results.get(timeout=timeout_s)
        except queue.Empty:
            self.stop()
            return None

    def stop(self) -> None:
        """Let the thread end after what it is at."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            self._results.put(call())


class NaiveRewardManager(RewardManager):
    """Scores rows one by one, here and now."""

    def __init__(self, reward_function: RewardCallable, tokenizer: Any, config: PPOTrainerConfig) -> None:
        """Store the arguments.

        Args:
            reward_function: see ``rl_core.contracts.reward``.
            tokenizer: decodes responses.
            config: the run's configuration.
        """
        self._reward_function = reward_function
        self._tokenizer = tokenizer
        self._deadline_s = config.reward_model.timeout
        self._max_late_fraction = config.trainer.max_failed_reward_fraction
        self._scorer: _Scorer | None = None

    def collect(self, batch: DataProto) -> list[RewardResult]:
        """See ``RewardManager``."""
        columns = batch.non_tensor_batch
        extra_info = columns.get("extra_info")
        results: list[RewardResult] = []
        num_late = 0
        for row, ids in enumerate(batch.batch["responses"].unbind()):
            if num_late > self._max_late_fraction * len(batch):
                # The step is lost already; waiting for every further row could take days.
                results.append(RewardResult(None, error=f"not scored: {num_late} rewards before it were too late"))
                continue
            result = self._score(
                data_source=columns["data_source"][row],
                solution_str=self._tokenizer.decode(ids.tolist(), skip_special_tokens=True),
                ground_truth=(columns["reward_model"][row] or {}).get("ground_truth"),
                extra_info=None if extra_info is None else extra_info[row],
            )
            num_late += result.error == self._late
            results.append(result)
        return results

    @property
    def _late(self) -> str:
        return f"no score within {self._deadline_s} s (reward_model.timeout)"

    def _score(self, **arguments: Any) -> RewardResult:
        """One reward; user code, so one failure is one missing reward, counted and limited in ``attach_rewards``."""
        self._scorer = self._scorer or _Scorer()
        result = self._scorer.run(partial(self._call, arguments), self._deadline_s)
        if result is None:
            # One that hangs is left behind, and holds up nobody else.
            self._scorer = None
            return RewardResult(None, error=self._late)
        return result

    def close(self) -> None:
        """Let the scoring thread end."""
        if self._scorer is not None:
            self._scorer.stop()
            self._scorer = None

    def _call(self, arguments: Mapping[str, Any]) -> RewardResult:
        try:
            value = self._reward_function(**arguments)
            if inspect.isawaitable(value):
                value = asyncio.run(_awaited(value))
        except (Exception, SystemExit) as error:
            return RewardResult(None, error=f"{type(error).__name__}: {error}")
        return parse_reward(value)


async def _awaited(value: Any) -> Any:
    return await value


def score_rows(batch: DataProto, manager: RewardManager, reward_model_wg: Any = None) -> list[RewardResult]:
    """The reward of each row.

    Args:
        batch: responses with the columns of their prompts.
        manager: asked where there is no reward model.
        reward_model_wg: worker group of the reward model.
    """
    return manager.collect(batch) if reward_model_wg is None else scored_rows(reward_model_wg.compute_rm_score(batch))


def scored_rows(scored: DataProto) -> list[RewardResult]:
    """The reward model's scores, jagged ``rm_scores`` with each sequence's score on its last token."""
    return [parse_reward(float(row[-1])) for row in scored.batch["rm_scores"].unbind()]


def load_reward_function(config: PPOTrainerConfig, registry: Registry) -> RewardCallable:
    """The reward function that the configuration names: a file of the user's, or a plugin's by ``data_source``.

    Raises:
        ConfigError: the file or the function in it does not exist.
    """
    custom = config.custom_reward_function
    if custom.path is None:
        return partial(_by_data_source, registry)
    path = Path(custom.path).expanduser()
    if not path.is_file():
        msg = f"custom_reward_function.path is {path}: no such file"
        raise ConfigError(msg)
    spec = importlib.util.spec_from_file_location("rl_custom_reward_function", path)
    if spec is None or spec.loader is None:
        msg = f"custom_reward_function.path is {path}: not a Python file"
        raise ConfigError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look a class's module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        msg = f"custom_reward_function.path {path} could not be loaded: {type(error).__name__}: {error}"
        raise ConfigError(msg) from error
    function = getattr(module, custom.name, None)
    if not callable(function):
        names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        msg = f"custom_reward_function.name is {custom.name!r}, but {path} has no such function; it has {', '.join(names)}"
        raise ConfigError(msg)
    return partial(function, **custom.reward_kwargs) if custom.reward_kwargs else cast("RewardCallable", function)


def _by_data_source(registry: Registry, *, data_source: str, **arguments: Any) -> Any:
    return cast("RewardCallable", registry.load("reward", data_source))(data_source=data_source, **arguments)


def attach_rewards(
    batch: DataProto, results: Sequence[RewardResult], max_missing_fraction: float
) -> tuple[DataProto, dict[str, Metric]]:
    """Put scores on the last trained token; leave out rows whose reward is missing.

    Args:
        batch: jagged ``response_mask`` with a trained token in every row.
        results: one for each row.
        max_missing_fraction: above this share of missing rewards the run stops.

    Returns:
        The rows with a reward, with jagged float32 ``token_level_scores`` and an object column ``reward_extra/<key>`` for
        each key of ``reward_extra_info``; and the counts.

    Raises:
        MissingRewardError: too many rewards are missing; quotes the first errors.
    """
    num_missing = require_rewards(results, max_missing_fraction)
    rows = np.array([row for row, result in enumerate(results) if result.score is not None], dtype=np.int64)
    kept = batch.select_idxs(rows)
    kept_results = [results[row] for row in rows]
    scores = [
        _outcome(mask, cast("float", result.score))
        for mask, result in zip(kept.batch["response_mask"].unbind(), kept_results, strict=True)
    ]
    extra_keys = sorted({key for result in kept_results for key in result.extra})
    scored = DataProto.from_dict(
        tensors={"token_level_scores": jagged_from_rows(scores)},
        non_tensors={
            f"reward_extra/{key}": np.array([result.extra.get(key) for result in kept_results], dtype=object)
            for key in extra_keys
        },
    )
    return kept.union(scored), {"reward/missing": Metric(num_missing, "sum")} | _extra_metrics(kept_results)


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


def _outcome(mask: torch.Tensor, score: float) -> torch.Tensor:
    """[T] float32: ``score`` on the last token that the policy emitted, 0.0 elsewhere."""
    column = torch.zeros(len(mask), dtype=torch.float32)
    column[mask.nonzero()[-1]] = score
    return column


def _extra_metrics(results: Sequence[RewardResult]) -> dict[str, Metric]:
    numbers: dict[str, list[float]] = {}
    for result in results:
        for key, value in result.extra.items():
            if isinstance(value, bool | int | float | np.number):
                numbers.setdefault(key, []).append(float(value))
    return {
        f"reward_extra/{key}/mean": Metric(float(np.mean(values)), "mean", count=len(values))
        for key, values in numbers.items()
    }


def reward_manager(config: PPOTrainerConfig, tokenizer: Any, registry: Registry) -> RewardManager:
    """The configured reward manager with the configured function."""
    manager_class = cast(
        "Callable[..., RewardManager]", registry.load("reward_manager", config.reward_model.reward_manager)
    )
    return manager_class(load_reward_function(config, registry), tokenizer, config)


def check_rewards_exist(config: PPOTrainerConfig, datasets: Iterable[PromptDataset], registry: Registry) -> None:
    """Where rows choose their reward, each of them must find one; see ``check_data_sources``.

    Raises:
        ConfigError: a data source has none.
    """
    if config.custom_reward_function.path is None and not config.reward_model.enable:
        for dataset in datasets:
            check_data_sources(dataset.data_sources(), registry)


def check_data_sources(sources: Mapping[str, int], registry: Registry) -> None:
    """Every ``data_source`` of the data must have a reward, found before a model is loaded.

    Args:
        sources: data source -> first row that has it.
        registry: knows the installed rewards.

    Raises:
        ConfigError: one is unknown: names it, its row, and what is installed.
    """
    known = registry.names("reward")
    for source, row in sources.items():
        if source not in known:
            msg = (
                f"row {row} has data_source {source!r}, for which no reward is installed. Installed: "
                f"{', '.join(known) or 'none'}. Name a function of your own with custom_reward_function.path, or "
                "install a package that scores it."
            )
            raise ConfigError(msg)
