"""``rollout.agent.*`` and ``rollout.multi_turn.*``: conversations with environments and tools."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rl_core.config.node import Node, choice, free_form, number, plugin


@dataclass
class AgentConfig(Node):
    """Which agent loop plays a row, and where."""

    num_workers: int = number(8, ge=1)
    """Processes that run agent loops, apart from the training workers."""

    default_agent_loop: str = plugin("agent_loop", "single_turn_agent", is_open=True)
    """Agent loop of rows without an ``agent_name`` column."""

    agent_loop_config_path: str | None = None
    """YAML list of further agent loops: ``name``, ``_target_`` and constructor arguments."""

    agent_loop_manager_class: str | None = None
    """Class that hosts the agent loops, as ``module:Class``; null takes the built-in one."""

    custom_async_server: dict[str, Any] = free_form()
    """Old way to give an engine server of your own; write a rollout plugin instead."""


@dataclass
class MultiTurnConfig(Node):
    """Limits and formats of a conversation."""

    enable: bool = False
    """Play rows without an ``agent_name`` with the tool-calling agent loop instead of a single turn."""

    max_assistant_turns: int | None = number(None, ge=1)
    """Most turns of the model; null leaves the length limit alone to end a conversation."""

    max_user_turns: int | None = number(None, ge=1)
    """Most turns of user and tools."""

    max_parallel_calls: int = number(1, ge=1)
    """Tool calls carried out per turn; further ones are answered with an error, never dropped."""

    max_tool_response_length: int = number(256, ge=0)
    """Longest tool answer in characters, not tokens."""

    tool_response_truncate_side: str = choice("middle", "left", "right", "middle")
    """Which part of a longer answer is cut away: the left, the right, or the middle."""

    tool_config_path: str | None = None
    """YAML file with tools."""

    function_tool_path: str | None = None
    """Python file with function tools."""

    format: str = plugin("tool_parser", "hermes")
    """Format of the model's tool calls."""

    use_inference_chat_template: bool = False
    """Old switch; conversations are always built from the ids that were sampled."""

    tokenization_sanity_check_mode: str = "strict"
    """Old switch; see above."""

    num_repeat_rollouts: int | None = None
    """Old name of ``rollout.n``."""
