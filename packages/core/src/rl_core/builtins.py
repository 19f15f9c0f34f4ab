"""Core's own parts, registered through the same door as everybody else's.

This module is the ``rl-core`` entry point: records only, nothing is imported that a part needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_core import hookimpl
from rl_core.plugins.records import (
    AdvantageRecord,
    CommandRecord,
    DatasetRecord,
    KLEstimatorRecord,
    LossAggregationRecord,
    PolicyLossRecord,
    ReshardingRecord,
    RewardManagerRecord,
    SamplerRecord,
    TrackerRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rl_core.plugins.records import Record


@hookimpl
def rl_plugins() -> Iterable[Record]:
    """Return the records of everything that core itself provides."""
    return (*_algorithms(), *_training(), *_commands())


def _algorithms() -> tuple[Record, ...]:
    advantages = "rl_core.algorithms.advantages"
    aggregation = "rl_core.algorithms.aggregation"
    kl = "rl_core.algorithms.kl"
    return (
        AdvantageRecord(
            name="gae",
            target=f"{advantages}.gae:gae",
            summary="Generalized advantage estimation with a critic.",
            needs=frozenset({"values"}),
        ),
        AdvantageRecord(
            name="grpo",
            target=f"{advantages}.grpo:grpo",
            summary="Outcome reward relative to the responses to the same prompt.",
            needs=frozenset({"group"}),
        ),
        PolicyLossRecord(
            name="vanilla",
            target="rl_core.algorithms.policy_losses.vanilla:vanilla",
            summary="PPO's clipped surrogate, with an upper clip for negative advantages.",
        ),
        LossAggregationRecord(
            name="token-mean", target=f"{aggregation}:token_mean", summary="Mean over all trained tokens."
        ),
        LossAggregationRecord(
            name="token-sum", target=f"{aggregation}:token_sum", summary="Sum over all trained tokens."
        ),
        LossAggregationRecord(
            name="seq-mean-token-sum",
            target=f"{aggregation}:seq_mean_token_sum",
            summary="Sum within a response, mean over responses.",
        ),
        LossAggregationRecord(
            name="seq-mean-token-sum-norm",
            target=f"{aggregation}:seq_mean_token_sum_norm",
            summary="Sum within a response over the longest possible length, mean over responses.",
        ),
        LossAggregationRecord(
            name="seq-mean-token-mean",
            target=f"{aggregation}:seq_mean_token_mean",
            summary="Mean within a response, mean over responses.",
        ),
        KLEstimatorRecord(
            name="k1", target=f"{kl}:k1", summary="Log ratio; unbiased, may be negative.", aliases=("kl",)
        ),
        KLEstimatorRecord(name="k2", target=f"{kl}:k2", summary="Half the squared log ratio.", aliases=("mse",)),
        KLEstimatorRecord(
            name="k3", target=f"{kl}:k3", summary="Unbiased and never negative.", aliases=("low_var_kl",)
        ),
        KLEstimatorRecord(name="abs", target=f"{kl}:k1_abs", summary="Absolute log ratio."),
    )


def _training() -> tuple[Record, ...]:
    return (
        ReshardingRecord(
            name="generic",
            target="rl_core.resharding.generic:GenericResharding",
            summary="Streams named tensors between any backend and any rollout.",
        ),
        RewardManagerRecord(
            name="naive",
            target="rl_core.trainer.ppo.reward:NaiveRewardManager",
            summary="Scores each response by the reward function of its data source.",
        ),
        SamplerRecord(
            name="sync",
            target="rl_core.trainer.ppo.sampler:SyncSampler",
            summary="Generates a whole batch, then trains on it.",
        ),
        SamplerRecord(
            name="colocate_async",
            target="rl_core.trainer.ppo.sampler_async:ColocateAsyncSampler",
            summary="Keeps batches in flight ahead; slow responses are cut and go on with newer weights.",
        ),
        DatasetRecord(
            name="prompts",
            target="rl_core.data.prompts:PromptDataset",
            summary="Prompts from JSON Lines and Parquet files.",
            aliases=("jsonl",),
        ),
        TrackerRecord(
            name="console",
            target="rl_core.trainer.trackers.console:ConsoleTracker",
            summary="One line a step, and a progress bar in a terminal.",
        ),
        TrackerRecord(
            name="jsonl",
            target="rl_core.trainer.trackers.jsonl:JsonlTracker",
            summary="Every number of a step as one line of metrics.jsonl.",
        ),
        TrackerRecord(
            name="tensorboard",
            target="rl_core.trainer.trackers.tensorboard:TensorboardTracker",
            summary="Event files for TensorBoard.",
            requires=("tensorboard>=2.14",),
        ),
        TrackerRecord(
            name="wandb",
            target="rl_core.trainer.trackers.wandb:WandbTracker",
            summary="Weights & Biases.",
            requires=("wandb>=0.17",),
        ),
    )


def _commands() -> tuple[Record, ...]:
    return (
        CommandRecord(
            name="train", target="rl_core.trainer.main_ppo:main", summary="Train; arguments are key=value overrides."
        ),
        CommandRecord(
            name="eval",
            target="rl_core.trainer.main_eval:main",
            summary="Score a checkpoint on a file: mean, pass@k, what is missing.",
        ),
        CommandRecord(
            name="sft", target="rl_core.trainer.sft:main", summary="Fine-tune on conversations; arguments as for train."
        ),
        CommandRecord(
            name="config", target="rl_core.cli.config_command:main", summary="Show the configuration of a run."
        ),
        CommandRecord(
            name="check", target="rl_core.cli.check_command:main", summary="Explain a configuration before it runs."
        ),
        CommandRecord(
            name="plugins", target="rl_core.cli.plugins_command:main", summary="List and check installed plugins."
        ),
    )
