"""``*.optim.*`` and ``*.checkpoint.*``: what actor and critic share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rl_core.config.node import Node, choice, free_form, number, plugin


@dataclass
class OptimConfig(Node):
    """Optimizer and learning-rate schedule."""

    optimizer: str = plugin("optimizer", "AdamW", is_open=True)
    """Optimizer by name."""

    optimizer_impl: str = "torch.optim"
    """Module ``optimizer`` is looked up in when no plugin provides the name."""

    lr: float = number(1e-6, ge=0)
    """Peak learning rate; 0 leaves the weights as they are (useful as a control)."""

    lr_warmup_steps: int = -1
    """Optimizer steps over which the rate rises from 0; negative takes ``lr_warmup_steps_ratio``."""

    lr_warmup_steps_ratio: float = number(0.0, ge=0, le=1)
    """The same as a share of all optimizer steps."""

    weight_decay: float = number(0.01, ge=0)
    """Decoupled weight decay."""

    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    """Adam's averaging factors."""

    min_lr_ratio: float = number(0.0, ge=0, le=1)
    """Floor of a decaying schedule, as a share of ``lr``."""

    num_cycles: float = number(0.5, gt=0)
    """Cosine waves over the run; 0.5 decays once."""

    lr_scheduler_type: str = choice("constant", "constant", "linear", "cosine")
    """Shape of the schedule after the warm-up."""

    zero_indexed_step: bool = True
    """The first optimizer step uses the schedule at 0 (with a warm-up that is a rate of 0); off starts at 1."""

    total_training_steps: int = -1
    """Optimizer steps the schedule spans; -1 takes the run's own length."""

    override_optimizer_config: dict[str, Any] = free_form()
    """Further arguments of the optimizer, passed as they are."""


@dataclass
class CheckpointConfig(Node):
    """What a role's checkpoint holds."""

    save_contents: list[str] = field(default_factory=lambda: ["model", "optimizer", "extra"])
    """Parts that are saved: ``model``, ``optimizer``, ``extra`` (schedule, random state), ``hf_model`` (export)."""

    load_contents: list[str] | None = None
    """Parts that are restored on resume; null restores what was saved."""

    async_save: bool = False
    """Copy the state to host memory and write the copy while training goes on."""

    strict: bool = True
    """Refuse a checkpoint with missing or unexpected entries."""
