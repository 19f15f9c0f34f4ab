"""The agent loop contract: a conversation that ends in one trajectory or several.

Loops run in CPU processes of their own and talk to the generation engine through a picklable ``RolloutClient``. What
the policy emitted has mask 1 and is trained on; tool results and chat glue have mask 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from rl_core.contracts.rollout import RolloutOutput, SamplingParams

if TYPE_CHECKING:
    import numpy as np


class RolloutClient(Protocol):
    """How a loop samples, from whichever process it runs in."""

    async def generate(
        self, *, session: str, prompt_ids: tuple[int, ...], sampling: SamplingParams, turn: int
    ) -> RolloutOutput:
        """Sample one turn. The seed derives from (session, turn); turns of one session go to one replica."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentLoopOutput:
    """One trajectory.

    Attributes:
        prompt_ids: what the policy was first given.
        response_ids: all that followed, tool results included.
        response_mask: 1 where the policy emitted the token; as long as ``response_ids``.
        response_logprobs: sampler's log-prob where the mask is 1, 0.0 elsewhere; None if the engine has none.
        reward_score: the environment's own reward; None leaves scoring to the reward function.
        num_turns: messages exchanged after the prompt, the policy's included.
        versions: weight version spans of the policy's tokens, as in ``RolloutOutput``.
        extra_fields: further values of the trajectory, kept as object columns (``reward_extra_info`` and so on).
        extras: per-token arrays [response length, ...].
    """

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    response_mask: tuple[int, ...]
    response_logprobs: tuple[float, ...] | None = None
    reward_score: float | None = None
    num_turns: int = 1
    versions: tuple[tuple[int, int], ...] = ()
    extra_fields: Mapping[str, Any] = field(default_factory=dict)
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)


class AgentLoop(ABC):
    """Plays one row. A new instance for every session; several run at once in one event loop."""

    def __init__(self, client: RolloutClient, tokenizer: Any, config: Any, **options: Any) -> None:
        """Store the arguments.

        Args:
            client: samples turns.
            tokenizer: of the policy.
            config: the ``rollout`` section.
            options: further keys of the loop's entry in ``agent_loop_config_path``.
        """
        self.client = client
        self.tokenizer = tokenizer
        self.config = config
        self.options = options

    @abstractmethod
    async def run(self, sampling_params: SamplingParams, **row: Any) -> AgentLoopOutput | list[AgentLoopOutput]:
        """Play one session.

        Args:
            sampling_params: how to draw.
            row: the row's columns, and ``uid``, ``session``, ``step``, ``validate``.

        Raises:
            Exception: any error fails this session alone: it is counted, and its trajectory is missing.
        """
