"""Keys that are common to a role and that only the plugin chosen for it can give an effect.

Core hands such a section to the plugin as it is. A plugin's configuration dataclass may say which of them it reads::

    common_keys: ClassVar[frozenset[str]] = frozenset({"max_num_seqs", "enforce_eager"})
    inert_keys: ClassVar[Mapping[str, str]] = {"load_format": "weights always come from the trainer"}

Names are those below the role's section, or ``model.NAME`` for the policy's model. With ``common_keys`` every other
key of this table is reported as having no effect; ``inert_keys`` adds a reason, and may name keys of the plugin's own
section too (``own_config.NAME``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rl_core.config.inert import matches
from rl_core.config.layout import PPO, RM, SFT, Layout
from rl_core.plugins import kind_label

if TYPE_CHECKING:
    from rl_core.config.compose import Composed

_MODEL: Final = "actor_rollout_ref.model"
_ACTOR: Final = "actor_rollout_ref.actor"
_REF: Final = "actor_rollout_ref.ref"
_ROLLOUT: Final = "actor_rollout_ref.rollout"


@dataclass(frozen=True)
class HandedOver:
    """Keys that one plugin gets."""

    chosen_by: str
    """Key that names the plugin."""

    section: str
    """Section that ``keys`` stand in, and that ``common_keys`` are relative to."""

    keys: tuple[str, ...]
    prefix: str = ""
    """What precedes a name in ``common_keys``."""


_MODEL_KEYS: Final = (
    "hf_config_path", "use_shm", "override_config.*", "enable_gradient_checkpointing", "enable_activation_offload",
    "use_remove_padding", "lora_rank", "lora_alpha", "target_modules", "exclude_modules", "lora_adapter_path", "lora.*",
    "use_liger", "use_fused_kernels", "fused_kernel_options.*", "tiled_mlp.*", "mtp.*",
)  # fmt: skip
_CHUNK: Final = "entropy_from_logits_chunk_size"
_ENGINE_KEYS: Final = (
    "ulysses_sequence_parallel_size", "use_torch_compile", "entropy_from_logits_with_chunking", _CHUNK,
    "entropy_checkpointing",
)  # fmt: skip
_TRAINED_KEYS: Final = ("grad_clip", "optim.*", "checkpoint.*")
_SCORER_KEYS: Final = (
    "path", "tokenizer_path", "override_config.*", "trust_remote_code", "use_shm", "use_remove_padding",
)  # fmt: skip
# What text a frozen scorer reads is core's business.
_FROZEN_KEYS: Final = tuple(key for key in _SCORER_KEYS if key != "tokenizer_path")
_VALUE_KEYS: Final = (
    "external_lib", "enable_gradient_checkpointing", "enable_activation_offload", "lora_rank", "lora_alpha",
    "target_modules", "tiled_mlp.*",
)  # fmt: skip
_ROLLOUT_KEYS: Final = (
    "full_determinism", "gpu_memory_utilization", "tensor_model_parallel_size", "data_parallel_size",
    "expert_parallel_size", "pipeline_model_parallel_size", "max_num_batched_tokens", "max_model_len", "max_num_seqs",
    "enforce_eager", "cudagraph_capture_sizes", "enable_chunked_prefill", "enable_prefix_caching", "load_format",
    "logprobs_mode", "dtype", "quantization", "quantization_config_file", "scheduling_policy", "disable_log_stats",
    "skip_tokenizer_init", "engine_kwargs.*", "enable_rollout_routing_replay", "moe_load_balance_metrics_interval",
    "prometheus.*", "disaggregation.*", "router_config_path",
)  # fmt: skip
_LOSS_KEYS: Final = (
    "tau_pos", "tau_neg", "policy_loss.clip_cov_ratio", "policy_loss.clip_cov_lb", "policy_loss.clip_cov_ub",
    "policy_loss.kl_cov_ratio", "policy_loss.ppo_kl_coef", "policy_loss.dro_beta",
)  # fmt: skip
_REWARD_KEYS: Final = ("reward_kwargs.*", "max_concurrent", "max_rpm", "max_tpm", "estimated_tokens_per_request")
_SCHEDULE_KEYS: Final = (
    "colocate_async.*", "separate_async.*", "sampler.max_off_policy_threshold", "sampler.max_off_policy_strategy",
)  # fmt: skip

TABLE: Final[tuple[HandedOver, ...]] = (
    HandedOver(f"{_ACTOR}.strategy", _MODEL, _MODEL_KEYS, "model."),
    HandedOver(
        f"{_ACTOR}.strategy",
        _ACTOR,
        (
            *_ENGINE_KEYS,
            *_TRAINED_KEYS,
            "pad_to_length",
            "use_prefix_grouper",
            "freeze_vision_tower",
            "router_replay.*",
        ),
    ),
    HandedOver(f"{_REF}.strategy", _REF, tuple(key for key in _ENGINE_KEYS if key != _CHUNK)),
    HandedOver("critic.strategy", "critic.model", (*_SCORER_KEYS, *_VALUE_KEYS), "model."),
    HandedOver("critic.strategy", "critic", ("ulysses_sequence_parallel_size", *_TRAINED_KEYS)),
    HandedOver("reward_model.strategy", "reward_model.model", _FROZEN_KEYS, "model."),
    HandedOver(
        "reward_model.strategy",
        "reward_model",
        ("ulysses_sequence_parallel_size", "grad_clip", "optim.*"),
    ),
    HandedOver(f"{_ROLLOUT}.name", _ROLLOUT, _ROLLOUT_KEYS),
    HandedOver(f"{_ACTOR}.policy_loss.loss_mode", _ACTOR, _LOSS_KEYS),
    HandedOver("algorithm.adv_estimator", "algorithm", ("gdpo_reward_keys", "gdpo_reward_weights")),
    HandedOver("reward_model.reward_manager", "reward_model", _REWARD_KEYS),
    HandedOver("trainer.v1.trainer_mode", "trainer.v1", _SCHEDULE_KEYS),
)
"""Every key that core hands over in ``rl train``."""

OFFLINE_TABLE: Final[tuple[HandedOver, ...]] = (
    HandedOver("engine.strategy", "model", _MODEL_KEYS, "model."),
    HandedOver("engine.strategy", "engine", ("grad_clip", "ulysses_sequence_parallel_size")),
    HandedOver("engine.strategy", "optim", ("*",), "optim."),
    HandedOver("engine.strategy", "checkpoint", ("async_save",), "checkpoint."),
)
"""The same in runs that train one model on a file (``rl sft``, ``rl rm``)."""

_TABLES: Final[Mapping[str, tuple[HandedOver, ...]]] = {
    PPO.name: TABLE,
    SFT.name: OFFLINE_TABLE,
    RM.name: OFFLINE_TABLE,
}


def is_handed_over(path: str, layout: Layout = PPO) -> bool:
    """Whether only a plugin can give this key an effect."""
    return any(matches(f"{entry.section}.{key}", path) for entry in _TABLES[layout.name] for key in entry.keys)


def unread_by_plugins(config: Composed, classes: Mapping[str, type]) -> Iterator[tuple[str, str]]:
    """Given keys that the chosen plugins say they do not read, with the reason.

    Args:
        config: composed configuration.
        classes: key that names a plugin -> the plugin's configuration dataclass.
    """
    seen: set[str] = set()
    for entry in _TABLES[config.schema.layout.name]:
        cls, record = classes.get(entry.chosen_by), config.records.get(entry.chosen_by)
        if cls is None or record is None or _is_from_file(entry, config):
            continue
        reads: frozenset[str] | None = getattr(cls, "common_keys", None)
        reasons: Mapping[str, str] = getattr(cls, "inert_keys", {})
        for path in sorted(config.given - seen):
            if not any(matches(f"{entry.section}.{key}", path) for key in entry.keys):
                continue
            name = entry.prefix + path.removeprefix(f"{entry.section}.")
            if name in reasons:
                yield path, reasons[name]
            elif reads is not None and not any(matches(key, name) for key in reads):
                yield path, f"{kind_label(record.kind)} {record.name!r} does not read it"
            else:
                continue
            seen.add(path)
    yield from _own_inert(config)


def _is_from_file(entry: HandedOver, config: Composed) -> bool:
    """Whether a class of the user's takes the place of the plugin; it says nothing about the keys it reads."""
    return entry.section == "reward_model" and bool(
        entry.chosen_by == "reward_model.reward_manager" and config.tree.reward_model.reward_manager_module.path
    )


def _own_inert(config: Composed) -> Iterator[tuple[str, str]]:
    """Given keys of the plugins' own sections that the plugins themselves call inert."""
    for mount in config.schema.mounts:
        reasons: Mapping[str, str] = getattr(mount.cls, "inert_keys", {})
        for name, reason in reasons.items():
            path = f"{mount.section}.{name}"
            if name.startswith(f"{mount.key}.") and path in config.given:
                yield path, reason
