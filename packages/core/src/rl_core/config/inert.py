"""Keys that are accepted and do nothing, and why: every key does something or says that it does not.

``COMPATIBILITY`` holds keys that commands written for other systems carry and that nothing here needs. ``LATER`` holds
keys whose feature this version does not have. Keys that only a plugin can give an effect stand in ``handed_over``,
those that the chosen algorithm or schedule switches off in ``inert_choice``. A test fails for a key that no source
file reads and that none of these tables names, and for a key that is called inert and is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rl_core.config.layout import PPO, Layout

COMPATIBILITY: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("the length filter is data.filter_overlong_prompts", ("data.filter_prompts",)),
    (
        "rows are read and tokenised once, before training, by data.filter_overlong_prompts_workers processes",
        ("data.dataloader_num_workers",),
    ),
    ("the templated text is not kept; data.return_raw_chat keeps the messages", ("data.return_full_prompt",)),
    ("what the processor makes of a prompt always reaches the engine", ("data.return_multi_modal_inputs",)),
    ("actor_rollout_ref.model.trust_remote_code decides", ("data.trust_remote_code",)),
    ("generation and training share their workers", ("actor_rollout_ref.hybrid_engine",)),
    ("engines always answer single requests asynchronously", ("actor_rollout_ref.rollout.mode",)),
    ("the temperature alone decides; 0 is greedy", ("actor_rollout_ref.rollout.do_sample",)),
    ("the seeds of all draws follow from trainer.seed", ("actor_rollout_ref.rollout.seed",)),
    ("engines are always woken in stages", ("actor_rollout_ref.rollout.multi_stage_wake_up",)),
    ("no spare rollouts are drawn; see algorithm.filter_groups", ("actor_rollout_ref.rollout.over_sample_rate",)),
    (
        "the generations of a step follow one another; data.gen_batch_size is how many prompts one has",
        ("algorithm.filter_groups.max_inflight_gen_batches",),
    ),
    ("an engine of your own is a rollout plugin", ("actor_rollout_ref.rollout.agent.custom_async_server.*",)),
    (
        "conversations are built from the ids that were sampled",
        (
            "actor_rollout_ref.rollout.multi_turn.use_inference_chat_template",
            "actor_rollout_ref.rollout.multi_turn.tokenization_sanity_check_mode",
        ),
    ),
    ("the group size is rollout.n", ("actor_rollout_ref.rollout.multi_turn.num_repeat_rollouts",)),
    ("a module in reward_manager_module.path takes precedence by itself", ("reward_model.reward_manager_source",)),
    ("scoring always starts as soon as the controller has a response", ("reward_model.launch_reward_fn_async",)),
    ("there is one trainer", ("trainer.use_v1",)),
    ("batches travel with the calls themselves", ("transfer_queue.*",)),
)
"""Why nothing needs them -> keys, or sections with ``*``."""

LATER: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("models that take images, videos and audio", ("data.image_patch_size", "data.mm_processor_kwargs.*")),
    ("data files copied to shared memory", ("data.use_shm",)),
    (
        "conversations with tools and environments",
        (
            "actor_rollout_ref.rollout.multi_turn.enable",
            "actor_rollout_ref.rollout.multi_turn.max_assistant_turns",
            "actor_rollout_ref.rollout.multi_turn.max_user_turns",
            "actor_rollout_ref.rollout.multi_turn.max_parallel_calls",
            "actor_rollout_ref.rollout.multi_turn.max_tool_response_length",
            "actor_rollout_ref.rollout.multi_turn.tool_response_truncate_side",
            "actor_rollout_ref.rollout.multi_turn.format",
            "actor_rollout_ref.rollout.agent.num_workers",
            "actor_rollout_ref.rollout.agent.default_agent_loop",
            "actor_rollout_ref.rollout.agent.agent_loop_config_path",
            "actor_rollout_ref.rollout.agent.agent_loop_manager_class",
        ),
    ),
    (
        "passes of their own size for computing values",
        ("critic.forward_micro_batch_size",),
    ),
    (
        "a choice of transport for weights",
        (
            "actor_rollout_ref.rollout.layered_summon",
            "actor_rollout_ref.rollout.checkpoint_engine.backend",
            "actor_rollout_ref.rollout.checkpoint_engine.engine_kwargs.*",
            "actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module",
        ),
    ),
    ("scoring models that write their judgement", ("reward_model.rollout.*",)),
    (
        "these checkpoint options",
        (
            "trainer.default_hdfs_dir",
            "trainer.del_local_ckpt_after_load",
            "trainer.checkpoint_callback_class",
            "trainer.esi_redundant_time",
        ),
    ),
    ("tracing of single rollouts", ("actor_rollout_ref.rollout.trace.*",)),
    (
        "profiling",
        ("actor_rollout_ref.rollout.profiler.*",),
    ),
    ("distillation from a teacher", ("distillation.*",)),
    ("replay of cached rollouts", ("skip.*",)),
)
"""What is missing -> keys, or sections with ``*``."""

_SHARED_SECTIONS: Final = ("trainer", "ray_kwargs")
"""Sections whose keys mean the same in every kind of run; the tables above speak about ``rl train``."""


def inert_reason(path: str, layout: Layout = PPO) -> str | None:
    """Why the key does nothing in this version, or None when it does something."""
    if layout is not PPO and path.partition(".")[0] not in _SHARED_SECTIONS:
        return None
    for table, words in ((COMPATIBILITY, ""), (LATER, "not in this version: ")):
        for reason, patterns in table:
            if any(matches(pattern, path) for pattern in patterns):
                return words + reason
    return None


def inert_lines(given: Iterable[str], layout: Layout = PPO) -> list[str]:
    """One line for each given key that does nothing."""
    reasons = {path: inert_reason(path, layout) for path in sorted(given)}
    return [f"{path} has no effect: {reason}." for path, reason in reasons.items() if reason is not None]


def matches(pattern: str, path: str) -> bool:
    """Whether ``path`` is the key, or lies in the section that ends in ``.*``."""
    section = pattern.removesuffix(".*")
    return path == section or (section != pattern and path.startswith(f"{section}."))
