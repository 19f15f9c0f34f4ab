"""What the advantage estimators of core and PF-PPO ask of the other keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from rl_core.config.compose import Config

Severity = Literal["error", "warning"]

ESTIMATOR_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "gae": ("gamma", "lam"),
    "grpo": ("norm_adv_by_std_in_grpo",),
    "grpo_passk": ("norm_adv_by_std_in_grpo",),
    "gdpo": ("norm_adv_by_std_in_grpo", "gdpo_reward_keys", "gdpo_reward_weights"),
    "reinforce_plus_plus": ("gamma",),
    "reinforce_plus_plus_baseline": (),
    "rloo": (),
    "remax": (),
    "opo": (),
    "gpg": (),
    "optimal_token_baseline": (),
    "tir_optimal_token_baseline": (),
}
"""Core's estimator -> the keys of ``algorithm`` it reads; what somebody else's reads is not known here."""


def unread_by_estimator(config: Config) -> Iterator[tuple[str, str]]:
    """Given keys that only other estimators of core read, and why they do nothing."""
    record = config.records.get("algorithm.adv_estimator")
    if record is None or record.name not in ESTIMATOR_KEYS:
        return
    for path in config.given:
        section, _, key = path.rpartition(".")
        readers = [name for name, keys in ESTIMATOR_KEYS.items() if key in keys]
        if section == "algorithm" and readers and record.name not in readers:
            yield path, f"advantage estimator {record.name!r} does not read it; {', '.join(readers)} would"


def estimator_contradictions(config: Config) -> Iterator[tuple[Severity, str]]:
    """What the chosen estimator cannot work with."""
    record = config.records.get("algorithm.adv_estimator")
    name = None if record is None else record.name
    algorithm, n = config.tree.algorithm, config.tree.actor_rollout_ref.rollout.n
    if name == "grpo_passk" and n < 2:
        yield (
            "error",
            f"rollout.n is {n}, but advantage estimator 'grpo_passk' compares the best response to a prompt with the "
            "second best. Set actor_rollout_ref.rollout.n to 2 or more.",
        )
    if name == "gdpo":
        yield from _gdpo(config)
    if algorithm.use_pf_ppo and algorithm.pf_ppo.reweight_method != "pow" and n == 1:
        yield (
            "warning",
            f"algorithm.pf_ppo.reweight_method is {algorithm.pf_ppo.reweight_method}, which ranks the responses to one "
            "prompt, but rollout.n is 1: all rows weigh the same. Set actor_rollout_ref.rollout.n, or use pow.",
        )


def _gdpo(config: Config) -> Iterator[tuple[Severity, str]]:
    algorithm = config.tree.algorithm
    keys, weights = algorithm.gdpo_reward_keys or [], algorithm.gdpo_reward_weights
    if not keys:
        yield (
            "error",
            "advantage estimator 'gdpo' normalises rewards one by one, but algorithm.gdpo_reward_keys names none. Give "
            "the keys that the reward function returns beside 'score'.",
        )
    elif len(set(keys)) < len(keys):
        yield "error", f"algorithm.gdpo_reward_keys names a reward twice: {', '.join(keys)}. Leave one out."
    elif weights is not None and len(weights) != len(keys):
        yield (
            "error",
            f"algorithm.gdpo_reward_weights has {len(weights)} weights for the {len(keys)} rewards of "
            "algorithm.gdpo_reward_keys. Give one each, or none to weigh them equally.",
        )
    if algorithm.use_kl_in_reward:
        yield (
            "error",
            "algorithm.use_kl_in_reward is true, but advantage estimator 'gdpo' reads the rewards of "
            "algorithm.gdpo_reward_keys, where the penalty does not stand. Use actor_rollout_ref.actor.use_kl_loss.",
        )
