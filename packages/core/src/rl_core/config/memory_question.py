"""How an engine tells, before anything is allocated, what it will hold on a device.

A record of a backend or rollout may name such a function (``memory="module:function"``). It gets a question and answers with
a ``MemoryEstimate``; it must load no torch, since ``rl check`` asks it, and it raises ``ConfigError`` where it cannot tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

UPDATE: Final = "update"
FORWARD: Final = "forward"
GENERATE: Final = "generate"
"""Keys of ``MemoryEstimate.work``: what is held beside the states at the peak of an update, of a pass without gradient, and of
generation."""


@dataclass(frozen=True, kw_only=True)
class TrainingMemoryQuestion:
    """One role of a training engine.

    Attributes:
        role: what the model is for, an ``EngineRole`` value: policy, value, reference, reward.
        model: its ``model`` section.
        plugin: the backend's own section; None where it has none.
        optim: its ``optim`` section; None for a role that is not trained.
        num_workers: workers of the role.
        update_tokens: most tokens of a forward and backward pass on one worker; 0 for a role that is not trained.
        forward_tokens: most tokens of a pass without gradient on one worker.
        accumulates: whether gradients of several passes add up before an optimizer step.
        compiled: whether blocks are compiled.
        with_entropy: whether an update has the gradient of the entropy.
        is_gpu: whether the devices are GPUs.
    """

    role: str
    model: Any
    plugin: Any = None
    optim: Any = None
    num_workers: int = 1
    update_tokens: int = 0
    forward_tokens: int = 0
    accumulates: bool = True
    compiled: bool = True
    with_entropy: bool = False
    is_gpu: bool = True


@dataclass(frozen=True, kw_only=True)
class RolloutMemoryQuestion:
    """One worker of a replica.

    Attributes:
        model: the policy's ``model`` section.
        rollout: the ``rollout`` section.
        device_bytes: memory of the device; None where it is not known.
        beside_bytes: what others hold on the device while responses are generated.
        is_gpu: whether the devices are GPUs.
    """

    model: Any
    rollout: Any
    device_bytes: int | None = None
    beside_bytes: int = 0
    is_gpu: bool = True


@dataclass(frozen=True)
class MemoryEstimate:
    """What an engine holds on one device, in bytes.

    Attributes:
        states: ``EngineState`` or ``RolloutState`` value -> bytes.
        work: ``UPDATE``, ``FORWARD``, ``GENERATE`` -> bytes held beside the states at the peak. In an update all gradients
            count as a state, though they may come into being while activations go.
        cache_tokens: tokens that a replica's cache holds; None for a training engine, and where it is not known.
    """

    states: Mapping[str, int]
    work: Mapping[str, int] = field(default_factory=dict)
    cache_tokens: int | None = None


TrainingMemory = Callable[[TrainingMemoryQuestion], MemoryEstimate]
RolloutMemory = Callable[[RolloutMemoryQuestion], MemoryEstimate]
