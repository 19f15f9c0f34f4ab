"""The one place in core that knows plugins by name.

Names here serve two purposes only: to say which distribution to install when a known name is asked for and absent,
and to hold the default training backend. Nothing is decided by them.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_BACKEND: Final = "fsdp"

# (kind, name or alias) -> the distribution that provides it.
KNOWN_PLUGINS: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("backend", "fsdp"): "rl-backend-fsdp",
        ("backend", "fsdp2"): "rl-backend-fsdp",
        ("backend", "deepspeed"): "rl-backend-deepspeed",
        ("backend", "megatron"): "rl-backend-megatron",
        ("rollout", "hf"): "rl-rollout-hf",
        ("rollout", "vllm"): "rl-rollout-vllm",
        ("rollout", "sglang"): "rl-rollout-sglang",
        ("reward_manager", "batch"): "rl-rewards",
        ("reward_manager", "dapo"): "rl-recipes",
        ("reward_manager", "prime"): "rl-rewards",
        ("reward_manager", "rate_limited"): "rl-rewards",
        ("reward_manager", "remote"): "rl-rewards",
        ("reward", "openai/gsm8k"): "rl-rewards",
        ("reward", "math"): "rl-rewards",
        ("reward", "code"): "rl-rewards",
        ("reward", "countdown"): "rl-rewards",
        ("reward", "llm_judge"): "rl-rewards",
        ("agent_loop", "agentenv"): "rl-agent",
        ("agent_loop", "single_turn_agent"): "rl-agent",
        ("agent_loop", "tool_agent"): "rl-agent",
        ("command", "demo"): "rl-demo",
        ("command", "report"): "rl-report",
        ("command", "reward"): "rl-rewards",
        ("command", "rows"): "rl-agent",
        ("reward_model", "prime"): "rl-recipes",
        ("advantage", "prime"): "rl-recipes",
        ("recipe", "cispo"): "rl-recipes",
        ("recipe", "dapo"): "rl-recipes",
        ("recipe", "dr_grpo"): "rl-recipes",
        ("recipe", "grpo"): "rl-recipes",
        ("recipe", "gspo"): "rl-recipes",
        ("recipe", "prime"): "rl-recipes",
    }
)


def known_distribution(kind: str, name: str) -> str | None:
    """The distribution that is known to provide ``name``, or None."""
    return KNOWN_PLUGINS.get((kind, name))


def known_names(kind: str) -> tuple[str, ...]:
    """Every name of ``kind`` in the table."""
    return tuple(name for known_kind, name in KNOWN_PLUGINS if known_kind == kind)
