"""What is on the device, and when: one table over all roles that share it.

::

    phase                part                 states
    sync_weights         actor, rollout       parameters; weights
    generate             rollout              weights, cache
    log_prob             actor                parameters
    ref_log_prob         ref                  parameters
    values               critic               parameters
    reward_model         reward_model         parameters
    reward_reference     reward_reference     parameters
    update_reward_model  reward_model         parameters, gradients, optimizer
    update_critic        critic               parameters, gradients, optimizer
    update_actor         actor                parameters, gradients, optimizer
    update_sft           actor                parameters, gradients, optimizer
    compute_loss         actor                parameters
    checkpoint           every trained part   parameters, optimizer

``rl_core.workers.phases`` applies it; ``rl check`` predicts memory with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class Part(StrEnum):
    """A holder of device memory."""

    ACTOR = "actor"
    REF = "ref"
    CRITIC = "critic"
    REWARD_MODEL = "reward_model"
    REWARD_REFERENCE = "reward_reference"
    ROLLOUT = "rollout"


class Phase(StrEnum):
    """What a worker is doing; the rows of the table."""

    SYNC_WEIGHTS = "sync_weights"
    GENERATE = "generate"
    LOG_PROB = "log_prob"
    REF_LOG_PROB = "ref_log_prob"
    VALUES = "values"
    REWARD_MODEL = "reward_model"
    REWARD_REFERENCE = "reward_reference"
    UPDATE_REWARD_MODEL = "update_reward_model"
    UPDATE_CRITIC = "update_critic"
    UPDATE_ACTOR = "update_actor"
    UPDATE_SFT = "update_sft"
    COMPUTE_LOSS = "compute_loss"
    CHECKPOINT = "checkpoint"


State = tuple[Part, str]
"""A part and one of its ``EngineState`` or ``RolloutState`` values."""


def _trained(part: Part) -> frozenset[State]:
    return frozenset({(part, "parameters"), (part, "gradients"), (part, "optimizer")})


NEEDS: Mapping[Phase, frozenset[State]] = {
    Phase.SYNC_WEIGHTS: frozenset({(Part.ACTOR, "parameters"), (Part.ROLLOUT, "weights")}),
    Phase.GENERATE: frozenset({(Part.ROLLOUT, "weights"), (Part.ROLLOUT, "kv_cache")}),
    Phase.LOG_PROB: frozenset({(Part.ACTOR, "parameters")}),
    Phase.REF_LOG_PROB: frozenset({(Part.REF, "parameters")}),
    Phase.VALUES: frozenset({(Part.CRITIC, "parameters")}),
    Phase.REWARD_MODEL: frozenset({(Part.REWARD_MODEL, "parameters")}),
    Phase.REWARD_REFERENCE: frozenset({(Part.REWARD_REFERENCE, "parameters")}),
    Phase.UPDATE_REWARD_MODEL: _trained(Part.REWARD_MODEL),
    Phase.UPDATE_CRITIC: _trained(Part.CRITIC),
    Phase.UPDATE_ACTOR: _trained(Part.ACTOR),
    Phase.UPDATE_SFT: _trained(Part.ACTOR),
    Phase.COMPUTE_LOSS: frozenset({(Part.ACTOR, "parameters")}),
    Phase.CHECKPOINT: frozenset(
        {
            (part, state)
            for part in (Part.ACTOR, Part.CRITIC, Part.REWARD_MODEL)
            for state in ("parameters", "optimizer")
        }
    ),
}
"""Phase -> the states it needs on the device."""


def evictable_states(part: Part, section: Any) -> set[State]:
    """What the configuration wants off the device between phases.

    A backend's section opts in with its boolean fields ``param_offload`` and ``optimizer_offload``, where it has them.
    """
    states: set[State] = set()
    if getattr(section, "param_offload", False):
        states |= {(part, "parameters"), (part, "gradients")}
    if getattr(section, "optimizer_offload", False):
        states.add((part, "optimizer"))
    return states
