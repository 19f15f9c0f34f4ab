"""Other spellings of keys: accepted, reported in one line each, and never allowed to contradict the canonical one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rl_core.config.nested import ABSENT, get_path, leaves, pop_path, set_path
from rl_core.config.schema import join

ALIASES: Final[tuple[tuple[str, str], ...]] = (
    # Longer paths first: a rule takes its subtree out, and what is left goes by the shorter rule.
    ("reward.custom_reward_function", "custom_reward_function"),
    ("reward.reward_manager.name", "reward_model.reward_manager"),
    ("reward.reward_manager.source", "reward_model.reward_manager_source"),
    ("reward.reward_manager.module", "reward_model.reward_manager_module"),
    ("reward.reward_model", "reward_model"),
    ("reward", "reward_model"),
    ("sandbox_fusion", "reward_model.sandbox_fusion"),
    ("reward_model.model_path", "reward_model.model.path"),
    ("actor_rollout_ref.actor.optim.warmup_style", "actor_rollout_ref.actor.optim.lr_scheduler_type"),
    ("critic.optim.warmup_style", "critic.optim.lr_scheduler_type"),
    ("actor_rollout_ref.actor.optim.clip_grad", "actor_rollout_ref.actor.grad_clip"),
    ("critic.optim.clip_grad", "critic.grad_clip"),
    ("actor_rollout_ref.actor.policy_loss.tau_pos", "actor_rollout_ref.actor.tau_pos"),
    ("actor_rollout_ref.actor.policy_loss.tau_neg", "actor_rollout_ref.actor.tau_neg"),
    ("actor_rollout_ref.model.lora.rank", "actor_rollout_ref.model.lora_rank"),
    ("actor_rollout_ref.model.lora.alpha", "actor_rollout_ref.model.lora_alpha"),
    ("actor_rollout_ref.model.lora.target_modules", "actor_rollout_ref.model.target_modules"),
    ("actor_rollout_ref.model.lora.exclude_modules", "actor_rollout_ref.model.exclude_modules"),
)
"""Other spelling -> canonical key, for single keys and for whole sections."""

OFFLINE_ALIASES: Final[tuple[tuple[str, str], ...]] = (
    ("model.partial_pretrain", "model.path"),
    ("optim.warmup_style", "optim.lr_scheduler_type"),
    ("optim.clip_grad", "engine.grad_clip"),
    ("model.lora.rank", "model.lora_rank"),
    ("model.lora.alpha", "model.lora_alpha"),
    ("model.lora.target_modules", "model.target_modules"),
    ("model.lora.exclude_modules", "model.exclude_modules"),
    ("trainer.max_actor_ckpt_to_keep", "trainer.max_ckpt_to_keep"),
)
"""The same for runs that train one model on a file (``rl sft``, ``rl rm``)."""

OFFLINE_KEEP_NEWEST: Final = ("trainer.max_ckpt_to_keep",)
"""Keys that ``trainer.remove_previous_ckpt_in_save`` means there."""

_KEEP_ONLY_NEWEST: Final = "trainer.remove_previous_ckpt_in_save"
_KEEP_NEWEST: Final = ("trainer.max_actor_ckpt_to_keep", "trainer.max_critic_ckpt_to_keep")


@dataclass
class Renamed:
    """What became of other spellings."""

    notices: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    written: dict[str, str] = field(default_factory=dict)
    """Canonical path of a leaf -> how it was written."""


def apply_aliases(
    given: dict[str, Any], rules: Iterable[tuple[str, str]], keep_newest: Sequence[str] = _KEEP_NEWEST
) -> Renamed:
    """Move values from other spellings to the canonical keys, in place.

    Args:
        given: nested values as the user gave them.
        rules: pairs (other spelling, canonical key), longer paths first.
        keep_newest: keys that a switch of other systems sets to 1.

    Returns:
        One notice for each rule that was used; an error for each pair of spellings with different values.
    """
    renamed = Renamed()
    for old, new in rules:
        value = pop_path(given, old)
        if value is ABSENT:
            continue
        renamed.notices.append(f"{old} is read as {new}.")
        for rest, leaf in leaves(value):
            _move(given, join(old, rest) if rest else old, join(new, rest) if rest else new, leaf, renamed)
    _apply_keep_only_newest(given, renamed, keep_newest)
    return renamed


def _move(given: dict[str, Any], old: str, new: str, value: Any, renamed: Renamed) -> None:
    present = get_path(given, new)
    if present is not ABSENT and present != value:
        renamed.errors.append(
            f"{old} and {new} are two spellings of one key, and they are set to {value!r} and {present!r}. "
            f"Keep {new} only."
        )
        return
    set_path(given, new, value)
    renamed.written[new] = renamed.written.pop(old, old)


def _apply_keep_only_newest(given: dict[str, Any], renamed: Renamed, keys: Sequence[str]) -> None:
    value = pop_path(given, _KEEP_ONLY_NEWEST)
    if value is ABSENT:
        return
    renamed.notices.append(f"{_KEEP_ONLY_NEWEST}={value} is read as {' and '.join(keys)}.")
    if value is True:
        for key in keys:
            _move(given, _KEEP_ONLY_NEWEST, key, 1, renamed)


def plugin_aliases(section: str, key: str, names: Sequence[str]) -> list[tuple[str, str]]:
    """Rules that let a plugin's section be written by the plugin's name or aliases.

    Args:
        section: path of the section that holds the plugin's.
        key: the section's canonical name there.
        names: the plugin's name and aliases.
    """
    return [(join(section, name), join(section, key)) for name in names if name != key]
