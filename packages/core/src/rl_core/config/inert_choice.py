"""Keys that do nothing with the plugins, algorithm or schedule chosen: one line each, at start and in ``rl check``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rl_core.config.estimators import unread_by_estimator
from rl_core.config.handed_over import unread_by_plugins
from rl_core.config.reward_model_check import TRAINED_KEYS, unread_by_reward_model
from rl_core.config.roles import needs_reference

if TYPE_CHECKING:
    from rl_core.config.compose import Config
    from rl_core.config.root import PPOTrainerConfig

_ACTOR: Final = "actor_rollout_ref.actor"
_ROLLOUT: Final = "actor_rollout_ref.rollout"


def _bypass_with(tree: PPOTrainerConfig, loss_type: str) -> bool:
    correction = tree.algorithm.rollout_correction
    return correction.bypass_mode and correction.loss_type == loss_type


@dataclass(frozen=True)
class Rule:
    """Keys that need something switched on."""

    keys: tuple[str, ...]
    """Keys, or sections that end in a dot."""

    is_on: Callable[[PPOTrainerConfig], bool]
    because: str


RULES: Final[tuple[Rule, ...]] = (
    Rule(("critic.",), lambda tree: bool(tree.critic.enable), "there is no value function in this run"),
    Rule(("actor_rollout_ref.ref.",), needs_reference, "no KL term is on, so no reference policy is loaded"),
    Rule(
        (f"{_ACTOR}.kl_loss_coef", f"{_ACTOR}.kl_loss_type"),
        lambda tree: tree.actor_rollout_ref.actor.use_kl_loss,
        f"{_ACTOR}.use_kl_loss is false",
    ),
    Rule(
        ("algorithm.kl_ctrl.", "algorithm.kl_penalty"),
        lambda tree: tree.algorithm.use_kl_in_reward,
        "algorithm.use_kl_in_reward is false",
    ),
    Rule(
        ("algorithm.kl_ctrl.horizon", "algorithm.kl_ctrl.target_kl"),
        lambda tree: tree.algorithm.kl_ctrl.type == "adaptive" or not tree.algorithm.use_kl_in_reward,
        "algorithm.kl_ctrl.type is fixed",
    ),
    Rule(("algorithm.pf_ppo.",), lambda tree: tree.algorithm.use_pf_ppo, "algorithm.use_pf_ppo is false"),
    Rule(
        ("algorithm.pf_ppo.weight_pow",),
        lambda tree: tree.algorithm.pf_ppo.reweight_method == "pow" or not tree.algorithm.use_pf_ppo,
        "algorithm.pf_ppo.reweight_method is another one",
    ),
    Rule(
        ("algorithm.filter_groups.metric", "algorithm.filter_groups.max_num_gen_batches", "data.gen_batch_size"),
        lambda tree: tree.algorithm.filter_groups.enable,
        "algorithm.filter_groups.enable is false",
    ),
    Rule(
        ("algorithm.rollout_correction.loss_type",),
        lambda tree: tree.algorithm.rollout_correction.bypass_mode,
        "algorithm.rollout_correction.bypass_mode is false",
    ),
    Rule(
        ("algorithm.rollout_correction.rollout_is",),
        lambda tree: not _bypass_with(tree, "ppo_clip"),
        "with bypass_mode and loss_type ppo_clip, the ratio of the loss is the correction",
    ),
    Rule(
        (f"{_ACTOR}.policy_loss.", f"{_ACTOR}.clip_ratio", f"{_ACTOR}.clip_ratio_", f"{_ACTOR}.tau_"),
        lambda tree: not _bypass_with(tree, "reinforce"),
        "algorithm.rollout_correction has bypass_mode and loss_type reinforce, which is the policy loss",
    ),
    Rule(
        (f"{_ACTOR}.use_rollout_log_probs",),
        lambda tree: not tree.algorithm.rollout_correction.bypass_mode,
        "algorithm.rollout_correction.bypass_mode does the same",
    ),
    Rule(
        (
            "algorithm.rollout_correction.rollout_is_threshold",
            "algorithm.rollout_correction.rollout_is_batch_normalize",
        ),
        lambda tree: tree.algorithm.rollout_correction.rollout_is is not None,
        "algorithm.rollout_correction.rollout_is is null",
    ),
    Rule(
        ("algorithm.rollout_correction.rollout_rs_threshold",),
        lambda tree: tree.algorithm.rollout_correction.rollout_rs is not None,
        "algorithm.rollout_correction.rollout_rs is null",
    ),
    Rule(
        (f"{_ACTOR}.ppo_micro_batch_size", f"{_ACTOR}.ppo_micro_batch_size_per_gpu"),
        lambda tree: not tree.actor_rollout_ref.actor.use_dynamic_bsz,
        f"{_ACTOR}.use_dynamic_bsz packs passes by tokens",
    ),
    Rule(
        (f"{_ACTOR}.ppo_max_token_len_per_gpu",),
        lambda tree: bool(
            tree.actor_rollout_ref.actor.use_dynamic_bsz or tree.actor_rollout_ref.rollout.log_prob_use_dynamic_bsz
        ),
        "passes are cut by responses, a micro-batch size is given",
    ),
    Rule(
        (f"{_ACTOR}.entropy_from_logits_chunk_size",),
        lambda tree: tree.actor_rollout_ref.actor.entropy_from_logits_with_chunking,
        f"{_ACTOR}.entropy_from_logits_with_chunking is false",
    ),
    Rule(
        (
            "actor_rollout_ref.model.lora_alpha",
            "actor_rollout_ref.model.lora.",
            "actor_rollout_ref.model.target_modules",
            "actor_rollout_ref.model.exclude_modules",
        ),
        lambda tree: tree.actor_rollout_ref.model.lora_rank > 0,
        "actor_rollout_ref.model.lora_rank is 0",
    ),
    Rule(
        ("critic.model.lora_alpha", "critic.model.target_modules"),
        lambda tree: tree.critic.model.lora_rank > 0,
        "critic.model.lora_rank is 0",
    ),
    Rule(
        (f"{_ROLLOUT}.n_gpus_per_node",),
        lambda tree: tree.actor_rollout_ref.rollout.nnodes > 0,
        f"{_ROLLOUT}.nnodes is 0, generation shares the trainer's workers",
    ),
    Rule(
        (
            "reward_model.type",
            "reward_model.model.",
            "reward_model.micro_batch_size",
            "reward_model.micro_batch_size_per_gpu",
            "reward_model.enable_resource_pool",
            "reward_model.nnodes",
            "reward_model.n_gpus_per_node",
            "reward_model.forward_max_token_len_per_gpu",
            "reward_model.update",
            *(f"reward_model.{key}" for key in TRAINED_KEYS),
        ),
        lambda tree: tree.reward_model.enable,
        "reward_model.enable is false",
    ),
    Rule(
        ("trainer.resume_from_path",),
        lambda tree: tree.trainer.resume_mode == "resume_path",
        "trainer.resume_mode is not resume_path",
    ),
    Rule(
        ("trainer.v1.colocate_async.",),
        lambda tree: tree.trainer.v1.trainer_mode == "colocate_async",
        "trainer.v1.trainer_mode is another one",
    ),
    Rule(
        ("trainer.v1.separate_async.",),
        lambda tree: tree.trainer.v1.trainer_mode == "separate_async",
        "trainer.v1.trainer_mode is another one",
    ),
    Rule(
        ("trainer.v1.sampler.max_off_policy_",),
        lambda tree: tree.trainer.v1.trainer_mode != "sync",
        "the synchronous schedule has no older weights",
    ),
    Rule(
        ("trainer.v1.sampler.sync_refill_failed_groups",),
        lambda tree: tree.trainer.v1.trainer_mode == "sync",
        "only the synchronous schedule reads it",
    ),
    Rule(
        ("trainer.v1.sampler.custom_sampler.name", "trainer.v1.sampler.sampler_kwargs"),
        lambda tree: tree.trainer.v1.sampler.custom_sampler.path is not None,
        "trainer.v1.sampler.custom_sampler.path is not set",
    ),
    Rule(
        ("trainer.v1.trainer_mode", "trainer.v1.sampler.sync_refill_failed_groups"),
        lambda tree: tree.trainer.v1.sampler.custom_sampler.path is None,
        "trainer.v1.sampler.custom_sampler is the schedule",
    ),
)

_CLIP: Final = ("clip_ratio", "clip_ratio_low", "clip_ratio_high")
_LOSS_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "vanilla": (*_CLIP, "clip_ratio_c"),
    "gspo": _CLIP,
    "cispo": _CLIP,
    "sapo": ("tau_pos", "tau_neg"),
    "geo_mean": _CLIP,
    "clip_cov": (*_CLIP, "policy_loss.clip_cov_ratio", "policy_loss.clip_cov_lb", "policy_loss.clip_cov_ub"),
    "kl_cov": ("policy_loss.kl_cov_ratio", "policy_loss.ppo_kl_coef"),
    "dppo_tv": (*_CLIP, "clip_ratio_c"),
    "dppo_kl": (*_CLIP, "clip_ratio_c"),
    "dro": ("policy_loss.dro_beta",),
    "gpg": (),
}
"""Core's policy loss -> the keys of the actor it reads; what somebody else's reads is not known here."""


def inert_choices(config: Config, classes: Mapping[str, type]) -> list[str]:
    """One line for each given key, or section of given keys, that the choices make inert.

    Args:
        config: composed configuration.
        classes: key that names a plugin -> the plugin's configuration dataclass; see ``handed_over``.
    """
    lines = []
    for rule in RULES:
        hit = [path for path in config.given if any(_is_under(path, key) for key in rule.keys)]
        if hit and not rule.is_on(config.tree):
            lines.append(f"{_named(hit)} no effect: {rule.because}.")
    for path, reason in [
        *_by_loss(config),
        *unread_by_estimator(config),
        *unread_by_reward_model(config),
        *unread_by_plugins(config, classes),
    ]:
        lines.append(f"{path} has no effect: {reason}.")
    return sorted(lines)


def _by_loss(config: Config) -> Iterator[tuple[str, str]]:
    mode = config.tree.actor_rollout_ref.actor.policy_loss.loss_mode
    if mode not in _LOSS_KEYS:
        return
    for path in config.given:
        readers = [loss for loss, keys in _LOSS_KEYS.items() if path.removeprefix(f"{_ACTOR}.") in keys]
        if path.startswith(_ACTOR) and readers and mode not in readers:
            them = " and ".join(repr(loss) for loss in readers)
            yield path, f"policy loss {mode!r} does not read it, {them} {'do' if len(readers) > 1 else 'does'}"


def _is_under(path: str, key: str) -> bool:
    return path == key or (key.endswith((".", "_")) and path.startswith(key))


def _named(paths: list[str]) -> str:
    paths = sorted(paths)
    if len(paths) <= 3:
        return f"{', '.join(paths)} {'has' if len(paths) == 1 else 'have'}"
    return f"{', '.join(paths[:3])} and {len(paths) - 3} more have"
