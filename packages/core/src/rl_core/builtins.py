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
    RewardModelRecord,
    SamplerRecord,
    TrackerRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rl_core.plugins.records import Record


@hookimpl
def rl_plugins() -> Iterable[Record]:
    """Return the records of everything that core itself provides."""
    return (*_advantages(), *_algorithms(), *_policy_losses(), *_training(), *_commands())


def _advantages() -> tuple[Record, ...]:
    package = "rl_core.algorithms.advantages"
    return (
        AdvantageRecord(
            name="gae",
            target=f"{package}.gae:gae",
            summary="Generalized advantage estimation with a critic.",
            needs=frozenset({"values"}),
        ),
        AdvantageRecord(
            name="grpo",
            target=f"{package}.grpo:grpo",
            summary="Outcome reward relative to the responses to the same prompt.",
            needs=frozenset({"group"}),
            aliases=("grpo_vectorized",),
        ),
        AdvantageRecord(
            name="grpo_passk",
            target=f"{package}.grpo_passk:grpo_passk",
            summary="The lead of the best response to a prompt over the second best, for pass@k.",
            needs=frozenset({"group"}),
        ),
        AdvantageRecord(
            name="gdpo",
            target=f"{package}.gdpo:gdpo",
            summary="Several rewards, each relative to its group before they are added.",
            needs=frozenset({"group"}),
        ),
        AdvantageRecord(
            name="reinforce_plus_plus",
            target=f"{package}.reinforce_plus_plus:reinforce_plus_plus",
            summary="Discounted return, whitened over the batch.",
        ),
        AdvantageRecord(
            name="reinforce_plus_plus_baseline",
            target=f"{package}.reinforce_plus_plus_baseline:reinforce_plus_plus_baseline",
            summary="Reward above the group's mean, whitened over the batch.",
            needs=frozenset({"group"}),
        ),
        AdvantageRecord(
            name="rloo",
            target=f"{package}.rloo:rloo",
            summary="Reward above the mean of the other responses to the same prompt.",
            needs=frozenset({"group"}),
            aliases=("rloo_vectorized",),
        ),
        AdvantageRecord(
            name="remax",
            target=f"{package}.remax:remax",
            summary="Return above the reward of the greedy response.",
            needs=frozenset({"greedy_baseline"}),
        ),
        AdvantageRecord(
            name="opo",
            target=f"{package}.opo:opo",
            summary="Reward above the length-weighted mean of the group.",
            needs=frozenset({"group"}),
        ),
        AdvantageRecord(
            name="gpg",
            target=f"{package}.gpg:gpg",
            summary="Reward above the group's mean, scaled up for groups that teach nothing.",
            needs=frozenset({"group"}),
        ),
        AdvantageRecord(
            name="optimal_token_baseline",
            target=f"{package}.optimal_token_baseline:optimal_token_baseline",
            summary="Return above a baseline of least variance at every token.",
            needs=frozenset({"group", "sum_pi_squared"}),
        ),
        AdvantageRecord(
            name="tir_optimal_token_baseline",
            target=f"{package}.tir_optimal_token_baseline:tir_optimal_token_baseline",
            summary="The same, with steps counted in trained tokens: for tool use.",
            needs=frozenset({"group", "sum_pi_squared"}),
        ),
    )


def _algorithms() -> tuple[Record, ...]:
    aggregation = "rl_core.algorithms.aggregation"
    kl = "rl_core.algorithms.kl"
    return (
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


def _policy_losses() -> tuple[Record, ...]:
    package = "rl_core.algorithms.policy_losses"
    by_response = "seq-mean-token-mean"
    return (
        PolicyLossRecord(
            name="vanilla",
            target=f"{package}.vanilla:vanilla",
            summary="PPO's clipped surrogate, with an upper clip for negative advantages.",
        ),
        PolicyLossRecord(
            name="gspo",
            target=f"{package}.gspo:gspo",
            summary="Clipped surrogate with one ratio a response, its length taken out.",
            aggregation=by_response,
        ),
        PolicyLossRecord(
            name="cispo",
            target=f"{package}.cispo:cispo",
            summary="Policy gradient weighed by the clipped ratio; no token loses its gradient.",
        ),
        PolicyLossRecord(
            name="sapo",
            target=f"{package}.sapo:sapo",
            summary="A smooth gate of the ratio instead of a clip, steeper for negative advantages.",
            aggregation=by_response,
        ),
        PolicyLossRecord(
            name="geo_mean",
            target=f"{package}.geo_mean:geo_mean",
            summary="GMPO: the geometric mean of a response's bounded ratios.",
            aggregation=by_response,
        ),
        PolicyLossRecord(
            name="clip_cov",
            target=f"{package}.clip_cov:clip_cov",
            summary="PPO without the gradient of some tokens of high covariance, which keeps entropy up.",
            prepare=f"{package}.clip_cov:choose_clip_cov",
        ),
        PolicyLossRecord(
            name="kl_cov",
            target=f"{package}.kl_cov:kl_cov",
            summary="A penalty on the tokens of highest covariance, which keeps entropy up.",
            prepare=f"{package}.kl_cov:choose_kl_cov",
        ),
        PolicyLossRecord(
            name="dppo_tv",
            target=f"{package}.dppo_tv:dppo_tv",
            summary="Trust region on the change of a token's probability instead of its ratio.",
        ),
        PolicyLossRecord(
            name="dppo_kl",
            target=f"{package}.dppo_kl:dppo_kl",
            summary="Trust region on the KL divergence of a token against all others.",
        ),
        PolicyLossRecord(
            name="dro",
            target=f"{package}.dro:dro",
            summary="Policy gradient held back by the squared log-ratio.",
        ),
        PolicyLossRecord(
            name="gpg",
            target=f"{package}.gpg:gpg",
            summary="The plain policy gradient.",
        ),
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
            target="rl_core.scoring.manager:NaiveRewardManager",
            summary="Scores each response by the reward function, in processes that can be killed.",
            config="rl_core.scoring.keys:NaiveKeys",
        ),
        RewardModelRecord(
            name="outcome",
            target="rl_core.workers.reward_model:RewardModelWorker",
            summary="A frozen model with a score head; its score takes the place of a reward function.",
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
            name="export",
            target="rl_core.trainer.main_export:main",
            summary="Write a model of a checkpoint as a Hugging Face folder.",
        ),
        CommandRecord(
            name="parity",
            target="rl_core.trainer.main_parity:main",
            summary="Compare log-probs of generator and trainer, and explain the gap.",
        ),
        CommandRecord(
            name="sft", target="rl_core.trainer.sft:main", summary="Fine-tune on conversations; arguments as for train."
        ),
        CommandRecord(
            name="rm",
            target="rl_core.trainer.rm:main",
            summary="Train a reward model on preference pairs; arguments as for train.",
        ),
        CommandRecord(
            name="config", target="rl_core.cli.config_command:main", summary="Show the configuration of a run."
        ),
        CommandRecord(
            name="check", target="rl_core.cli.check_command:main", summary="Explain a configuration before it runs."
        ),
        CommandRecord(name="data", target="rl_core.cli.data_command:main", summary="Show rows as the model sees them."),
        CommandRecord(
            name="plugins", target="rl_core.cli.plugins_command:main", summary="List and check installed plugins."
        ),
    )
