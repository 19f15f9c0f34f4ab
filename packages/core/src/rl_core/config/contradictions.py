"""Keys that contradict one another: refused, or warned about when the run is still well defined."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal

from rl_core.config.correction import correction_findings
from rl_core.config.derive import estimator_needs, needs_values
from rl_core.config.estimators import estimator_contradictions
from rl_core.config.parity_check import parity_findings
from rl_core.config.profiler import profiler_findings
from rl_core.config.reward_model_check import reward_model_errors
from rl_core.config.role_needs import adapter_errors
from rl_core.config.roles import pool_errors, pools
from rl_core.plugins import AdvantageRecord, PolicyLossRecord

if TYPE_CHECKING:
    from rl_core.config.compose import Config

Severity = Literal["error", "warning"]

_KL_COEFFICIENTS: Final = ("algorithm.kl_ctrl.kl_coef", "actor_rollout_ref.actor.kl_loss_coef")


def contradictions(config: Config) -> Iterator[tuple[Severity, str]]:
    """Every contradiction in a composed configuration."""
    yield from _kl(config)
    yield from _critic(config)
    yield from _policy_loss(config)
    yield from estimator_contradictions(config)
    yield from _sampling(config)
    yield from parity_findings(config)
    yield from profiler_findings(config)
    yield from correction_findings(config)
    yield from _lengths(config)
    yield from _models(config)
    yield from _run(config)
    yield from (("error", message) for message in pool_errors(config.tree))


def _kl(config: Config) -> Iterator[tuple[Severity, str]]:
    in_reward = config.tree.algorithm.use_kl_in_reward
    in_loss = config.tree.actor_rollout_ref.actor.use_kl_loss
    if in_reward and in_loss:
        both = "algorithm.use_kl_in_reward and actor_rollout_ref.actor.use_kl_loss are both true: the KL divergence "
        if config.tree.algorithm.allow_kl_in_both:
            yield "warning", f"{both}counts in the reward and in the loss, as algorithm.allow_kl_in_both allows."
        else:
            yield (
                "error",
                f"{both}would count twice. Turn one off, or set algorithm.allow_kl_in_both=true if that is meant.",
            )
    given = [key for key in _KL_COEFFICIENTS if key in config.given]
    if given and not in_reward and not in_loss:
        yield (
            "warning",
            f"{' and '.join(given)} is given, but no KL term is on, so it is unused. Turn on "
            "actor_rollout_ref.actor.use_kl_loss or algorithm.use_kl_in_reward.",
        )


def _critic(config: Config) -> Iterator[tuple[Severity, str]]:
    tree = config.tree
    estimator = tree.algorithm.adv_estimator
    if "algorithm.adv_estimator" not in config.records:
        return
    needed = needs_values(config.records)
    if needed and not tree.critic.enable:
        yield "error", f"critic.enable is false, but advantage estimator {estimator!r} works on values. Leave it out."
    if tree.critic.enable and not needed:
        yield (
            "warning",
            f"critic.enable is true, but advantage estimator {estimator!r} does not use values: the value function "
            "is trained for nothing.",
        )
    if estimator_needs(config.records, "sum_pi_squared") and not tree.actor_rollout_ref.actor.calculate_sum_pi_squared:
        yield (
            "error",
            f"actor_rollout_ref.actor.calculate_sum_pi_squared is false, but advantage estimator {estimator!r} needs the "
            "sums of squared probabilities. Leave it out.",
        )
    if tree.trainer.critic_warmup > 0 and not tree.critic.enable:
        yield (
            "error",
            (
                f"trainer.critic_warmup is {tree.trainer.critic_warmup}, but there is no critic: nothing would be trained "
                "in those steps. Leave it out."
            ),
        )


def _policy_loss(config: Config) -> Iterator[tuple[Severity, str]]:
    actor = config.tree.actor_rollout_ref.actor
    settings = actor.policy_loss
    if settings.loss_mode == "dro" and settings.dro_beta is None:
        yield (
            "error",
            "actor_rollout_ref.actor.policy_loss.loss_mode is dro, but actor_rollout_ref.actor.policy_loss.dro_beta, the "
            "weight of its squared log-ratio, is not set. It has no default; give it.",
        )
    if settings.loss_mode == "clip_cov" and not settings.clip_cov_lb < settings.clip_cov_ub:
        yield (
            "error",
            f"actor_rollout_ref.actor.policy_loss.clip_cov_lb ({settings.clip_cov_lb:g}) is not below clip_cov_ub "
            f"({settings.clip_cov_ub:g}): no token lies between them. Raise the upper one.",
        )
    record = config.records.get("actor_rollout_ref.actor.policy_loss.loss_mode")
    wanted = record.aggregation if isinstance(record, PolicyLossRecord) else None
    if wanted is not None and actor.loss_agg_mode != wanted:
        yield (
            "warning",
            f"policy loss {settings.loss_mode!r} is its method's only with "
            f"actor_rollout_ref.actor.loss_agg_mode={wanted}; it is {actor.loss_agg_mode}. Set it.",
        )


def _sampling(config: Config) -> Iterator[tuple[Severity, str]]:
    rollout = config.tree.actor_rollout_ref.rollout
    estimator = config.records.get("algorithm.adv_estimator")
    if (
        isinstance(estimator, AdvantageRecord)
        and "group" in estimator.needs
        and rollout.n == 1
        and estimator.name != "grpo_passk"
    ):
        yield (
            "warning",
            f"rollout.n is 1, but advantage estimator {estimator.name!r} compares the responses of one prompt. Set "
            "actor_rollout_ref.rollout.n to 4 or more.",
        )
    yield from _groups(config)
    if rollout.temperature == 0 and rollout.n > 1:
        yield "warning", f"rollout.temperature is 0, so all {rollout.n} responses to a prompt are the same."
    correction = config.tree.algorithm.rollout_correction
    wants_log_probs = [
        key
        for key, is_on in (
            (
                "actor_rollout_ref.actor.use_rollout_log_probs",
                config.tree.actor_rollout_ref.actor.use_rollout_log_probs,
            ),
            ("algorithm.rollout_correction.bypass_mode", correction.bypass_mode),
            ("algorithm.rollout_correction.rollout_is", correction.rollout_is is not None),
            ("algorithm.rollout_correction.rollout_rs", correction.rollout_rs is not None),
        )
        if is_on
    ]
    if wants_log_probs and not rollout.calculate_log_probs:
        yield (
            "error",
            (
                f"{wants_log_probs[0]} needs the sampler's log-probs, but "
                "actor_rollout_ref.rollout.calculate_log_probs is false. Turn it on."
            ),
        )
    yield from _validation_sampling(config)


def _groups(config: Config) -> Iterator[tuple[Severity, str]]:
    tree = config.tree
    rollout, metric = tree.actor_rollout_ref.rollout, tree.algorithm.filter_groups.metric
    if estimator_needs(config.records, "greedy_baseline") and not rollout.greedy_baseline:
        yield (
            "error",
            f"actor_rollout_ref.rollout.greedy_baseline is false, but advantage estimator {tree.algorithm.adv_estimator!r} "
            "works on the reward of a greedy response. Leave it out.",
        )
    if not tree.algorithm.filter_groups.enable:
        return
    if rollout.n == 1:
        yield (
            "error",
            "algorithm.filter_groups.enable is true, but actor_rollout_ref.rollout.n is 1: the rewards of one response "
            "cannot differ, so no group would be kept. Set rollout.n to 4 or more, or turn the filter off.",
        )
    if metric == "seq_final_reward" and tree.algorithm.use_kl_in_reward:
        yield (
            "warning",
            "algorithm.filter_groups.metric is seq_final_reward: groups are judged by the score, before "
            "algorithm.use_kl_in_reward subtracts anything from it.",
        )


def _validation_sampling(config: Config) -> Iterator[tuple[Severity, str]]:
    validation = config.tree.actor_rollout_ref.rollout.val_kwargs
    if validation.do_sample and validation.temperature == 0:
        yield (
            "error",
            "rollout.val_kwargs.do_sample is true, but rollout.val_kwargs.temperature is 0. Set the temperature.",
        )
    if not validation.do_sample and validation.temperature > 0:
        yield (
            "warning",
            "rollout.val_kwargs.do_sample is false, so validation is greedy and rollout.val_kwargs.temperature "
            f"({validation.temperature:g}) is unused.",
        )
    if validation.n > 1 and not validation.do_sample:
        yield (
            "warning",
            f"rollout.val_kwargs.n is {validation.n} and validation is greedy, so all of a prompt's validation "
            "responses are the same.",
        )


def _lengths(config: Config) -> Iterator[tuple[Severity, str]]:
    rollout, actor = config.tree.actor_rollout_ref.rollout, config.tree.actor_rollout_ref.actor
    prompt, response = rollout.prompt_length or 0, rollout.response_length or 0
    longest = prompt + response
    if rollout.max_model_len is not None and rollout.max_model_len < longest:
        yield (
            "error",
            (
                f"actor_rollout_ref.rollout.max_model_len ({rollout.max_model_len}) is less than the longest prompt "
                f"({prompt}) plus the longest response ({response}) = {longest}. Raise it, or lower data.max_prompt_length "
                "or data.max_response_length."
            ),
        )
    budget = actor.ppo_max_token_len_per_gpu * actor.ulysses_sequence_parallel_size
    if actor.use_dynamic_bsz and budget < longest:
        yield (
            "warning",
            (
                f"actor_rollout_ref.actor.ppo_max_token_len_per_gpu gives a budget of {budget} tokens per pass, and the "
                f"longest sequence has {longest}: such a sequence runs alone, over the budget."
            ),
        )
    if actor.ulysses_sequence_parallel_size > 1 and not config.tree.actor_rollout_ref.model.use_remove_padding:
        yield (
            "error",
            (
                f"actor_rollout_ref.actor.ulysses_sequence_parallel_size is {actor.ulysses_sequence_parallel_size}, which "
                "needs packed sequences, but actor_rollout_ref.model.use_remove_padding is false. Turn it on."
            ),
        )


def _models(config: Config) -> Iterator[tuple[Severity, str]]:
    tree = config.tree
    if tree.actor_rollout_ref.model.path is None:
        yield "warning", "actor_rollout_ref.model.path is not set; engines that load a model will refuse to start."
    yield from (("error", text) for text in adapter_errors(tree.actor_rollout_ref.model, "actor_rollout_ref.model"))
    yield from (("error", text) for text in reward_model_errors(config))


def _run(config: Config) -> Iterator[tuple[Severity, str]]:
    trainer = config.tree.trainer
    if not trainer.use_v1:
        yield "error", "trainer.use_v1 is false, but there is one trainer only. Leave it out."
    if not config.tree.actor_rollout_ref.hybrid_engine:
        yield (
            "error",
            (
                "actor_rollout_ref.hybrid_engine is false. To give generation devices of its own, set "
                "actor_rollout_ref.rollout.nnodes and actor_rollout_ref.rollout.n_gpus_per_node."
            ),
        )
    if trainer.resume_mode == "resume_path" and trainer.resume_from_path is None:
        yield "error", "trainer.resume_mode is resume_path, but trainer.resume_from_path is not set. Give the folder."
    split = [pool.name for pool in pools(config.tree) if "rollout" in pool.roles and "actor" not in pool.roles]
    if split and trainer.v1.trainer_mode == "sync":
        yield (
            "warning",
            (
                "generation has devices of its own (rollout.nnodes), and the schedule is synchronous: they wait while "
                "the others train, and the others wait while they generate. Share devices, or keep batches in flight with "
                "trainer.v1.trainer_mode."
            ),
        )
