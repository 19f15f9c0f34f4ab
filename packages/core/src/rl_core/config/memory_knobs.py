"""What to lower when a phase needs more memory than there is: for ``rl check``, and for the error of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from rl_core.config.phase_table import NEEDS, Part, Phase, State

_REF: Final = "actor_rollout_ref"

KNOBS: Final[Mapping[Phase, tuple[str, ...]]] = {
    Phase.SYNC_WEIGHTS: (
        f"{_REF}.rollout.checkpoint_engine.update_weights_bucket_megabytes",
        f"{_REF}.rollout.gpu_memory_utilization",
    ),
    Phase.GENERATE: (
        f"{_REF}.rollout.gpu_memory_utilization",
        f"{_REF}.rollout.max_num_seqs",
        f"{_REF}.rollout.max_num_batched_tokens",
    ),
    Phase.LOG_PROB: (
        f"{_REF}.rollout.log_prob_max_token_len_per_gpu",
        f"{_REF}.rollout.log_prob_micro_batch_size_per_gpu",
    ),
    Phase.REF_LOG_PROB: (
        f"{_REF}.ref.log_prob_max_token_len_per_gpu",
        f"{_REF}.ref.log_prob_micro_batch_size_per_gpu",
    ),
    Phase.VALUES: ("critic.forward_max_token_len_per_gpu", "critic.forward_micro_batch_size_per_gpu"),
    Phase.REWARD_MODEL: ("reward_model.forward_max_token_len_per_gpu", "reward_model.micro_batch_size_per_gpu"),
    Phase.REWARD_REFERENCE: ("reward_model.forward_max_token_len_per_gpu", "reward_model.micro_batch_size_per_gpu"),
    Phase.UPDATE_REWARD_MODEL: (
        "reward_model.forward_max_token_len_per_gpu",
        "reward_model.micro_batch_size_per_gpu",
        "data.max_token_len_per_gpu (rl rm)",
        "data.micro_batch_size_per_gpu (rl rm)",
    ),
    Phase.UPDATE_CRITIC: ("critic.ppo_max_token_len_per_gpu", "critic.ppo_micro_batch_size_per_gpu"),
    Phase.UPDATE_ACTOR: (f"{_REF}.actor.ppo_max_token_len_per_gpu", f"{_REF}.actor.ppo_micro_batch_size_per_gpu"),
    Phase.UPDATE_SFT: ("data.max_token_len_per_gpu", "data.micro_batch_size_per_gpu"),
    Phase.COMPUTE_LOSS: ("data.max_token_len_per_gpu", "data.micro_batch_size_per_gpu"),
    Phase.CHECKPOINT: (),
}
"""Phase -> the keys that cut its work; of sizes in tokens and in rows, the one that the run uses counts."""

SECTIONS: Final[Mapping[Part, str]] = {
    Part.ACTOR: f"{_REF}.actor",
    Part.REF: f"{_REF}.ref",
    Part.CRITIC: "critic",
    Part.REWARD_MODEL: "reward_model",
    Part.REWARD_REFERENCE: "reward_model",
}
"""Training part -> its section."""

_RECOMPUTED: Final[Mapping[Phase, str]] = {
    Phase.UPDATE_ACTOR: f"{_REF}.model.enable_gradient_checkpointing",
    Phase.UPDATE_CRITIC: "critic.model.enable_gradient_checkpointing",
    Phase.UPDATE_SFT: "model.enable_gradient_checkpointing",
}


def advice(phase: Phase | None, resident: Collection[State], *, recomputes: bool | None = None) -> list[str]:
    """What helps, one line each, the first first.

    Args:
        phase: that needs too much; None for the loading of models.
        resident: what is on the device in it.
        recomputes: whether activations are recomputed already; None where that is not known.
    """
    lines = []
    if phase is not None and KNOBS[phase]:
        lines.append(f"lower {_either(KNOBS[phase])}")
    if phase is not None and phase in _RECOMPUTED and not recomputes:
        lines.append(f"set {_RECOMPUTED[phase]}=True, if it is not")
    needed = NEEDS[phase] if phase is not None else frozenset()
    lines += _offloads(sorted(set(resident) - needed))
    if not lines:
        lines.append(
            "take fewer weights on a device: more workers, a smaller model, or offload_policy of the engine's section"
        )
    return lines


def _offloads(idle: Iterable[State]) -> list[str]:
    """How what a phase does not need could leave the device."""
    lines: dict[str, None] = {}
    for part, state in idle:
        if part is Part.ROLLOUT:
            lines[f"set {_REF}.rollout.free_cache_engine=True: the generator keeps its memory meanwhile"] = None
        elif state != "gradients":
            key = "optimizer_offload" if state == "optimizer" else "param_offload"
            held = "optimizer state" if state == "optimizer" else "weights"
            lines[f"set {key}=True in the engine's section below {SECTIONS[part]}: {held} of {part} idle meanwhile"] = (
                None
            )
    return list(lines)


def _either(keys: tuple[str, ...]) -> str:
    return keys[0] if len(keys) == 1 else f"{', '.join(keys[:-1])} or {keys[-1]}"
