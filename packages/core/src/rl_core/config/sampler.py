"""``trainer.v1.*``: which schedule generation and training follow, and what the sampler does with failures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rl_core.config.data import CustomClassConfig
from rl_core.config.node import Node, choice, free_form, number, plugin


@dataclass
class SamplerConfig(Node):
    """What the sampler hands to the loop."""

    max_off_policy_threshold: int | None = number(8, ge=0)
    """Oldest weight version, counted back from the newest, that a rollout may hold; null sets no limit. Each optimizer
    step makes a version. The synchronous schedule has no older versions."""

    max_off_policy_strategy: str = choice("drop", "drop", "wait")
    """``drop``: batches are made of what is ready first, and a rollout beyond the threshold is dropped and drawn anew.
    ``wait``: batches keep the order of the data, and no more are ahead than the threshold allows."""

    sync_refill_failed_groups: bool = False
    """Draw a fresh prompt for a group in which every rollout failed (synchronous schedule). Failed ones still count for
    ``trainer.max_failed_rollout_fraction``."""

    custom_sampler: CustomClassConfig = field(default_factory=CustomClassConfig)
    """``Sampler`` class from a file, the schedule in place of ``trainer_mode``."""

    sampler_kwargs: dict[str, Any] = free_form()
    """Further arguments of its ``from_workers``."""


@dataclass
class ColocateAsyncConfig(Node):
    """Generation and training take turns on the same devices; a response that holds a step up is cut, and goes on."""

    num_warmup_batches: int = number(1, ge=0)
    """Batches in flight ahead of the one that is trained; 0 is the synchronous schedule."""


@dataclass
class SeparateAsyncConfig(Node):
    """Generation on devices of its own."""

    num_warmup_batches: int = number(1, ge=0)
    """Batches in flight ahead of the one that is trained."""

    parameter_sync_step: int = number(4, ge=1)
    """Optimizer steps between weight synchronisations."""

    hybrid_rollout: dict[str, Any] = free_form()
    """Lending idle training devices to generation."""


@dataclass
class V1Config(Node):
    """Schedule."""

    trainer_mode: str = plugin("sampler", "sync")
    """Schedule by name: ``sync`` waits for a step's slowest rollout; others keep batches in flight."""

    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    """Sampler."""

    colocate_async: ColocateAsyncConfig = field(default_factory=ColocateAsyncConfig)
    """Settings of ``colocate_async``."""

    separate_async: SeparateAsyncConfig = field(default_factory=SeparateAsyncConfig)
    """Settings of ``separate_async``."""
