"""Optimizer and learning-rate schedule of the fakes, as functions of plain tensors.

State lives in dictionaries that the engine owns, so it can be offloaded, cut for another number of ranks and saved
without asking an optimizer object.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from rl_core.errors import ConfigError
from torch import Tensor

_OPTIMIZERS = {"AdamW": torch.optim.AdamW, "Adam": torch.optim.Adam, "SGD": torch.optim.SGD}
_SCHEDULES = ("constant", "linear", "cosine")


def setting(optim: Any, name: str, default: Any) -> Any:
    """A value of an ``optim`` section, which may be a dataclass, a mapping or any object with attributes."""
    value = optim.get(name) if isinstance(optim, Mapping) else getattr(optim, name, None)
    return default if value is None else value


def check(optim: Any) -> None:
    """Refuse an ``optim`` section that these functions cannot honour.

    Raises:
        ConfigError: the optimizer or the schedule has an unknown name.
    """
    for key, default, known in (
        ("optimizer", "AdamW", tuple(_OPTIMIZERS)),
        ("lr_scheduler_type", "constant", _SCHEDULES),
    ):
        value = setting(optim, key, default)
        if value not in known:
            msg = f"optim.{key}={value!r} is not known to the fake engines; choose one of {', '.join(known)}"
            raise ConfigError(msg)


def state_key(parameter: str, name: str) -> str:
    """Key of one tensor of the optimizer's state."""
    return f"{parameter}/{name}"


def split_key(key: str) -> tuple[str, str]:
    """Parameter and name of a ``state_key``."""
    parameter, _, name = key.rpartition("/")
    return parameter, name


def apply_gradients(
    optim: Any,
    learning_rate: float,
    parameters: Mapping[str, Tensor],
    gradients: Mapping[str, Tensor],
    state: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Take one step on ``parameters``, in place.

    Args:
        optim: the role's ``optim`` section.
        learning_rate: of this step.
        parameters: name -> tensor.
        gradients: one for each parameter.
        state: what the last step returned; empty before the first.

    Returns:
        The state after the step, by ``state_key``.
    """
    name = setting(optim, "optimizer", "AdamW")
    options: dict[str, Any] = {"weight_decay": setting(optim, "weight_decay", 0.0)}
    if name != "SGD":
        options["betas"] = tuple(setting(optim, "betas", (0.9, 0.999)))
    options |= dict(setting(optim, "override_optimizer_config", {}))
    if not parameters:  # a stage without layers; torch builds no optimizer of nothing
        return {}
    leaves = {key: torch.nn.Parameter(tensor.detach()) for key, tensor in parameters.items()}
    optimizer = _OPTIMIZERS[name](list(leaves.values()), lr=learning_rate, **options)
    for key, tensor in state.items():
        parameter, entry = split_key(key)
        optimizer.state[leaves[parameter]][entry] = tensor
    for key, leaf in leaves.items():
        leaf.grad = gradients[key]
    optimizer.step()
    return {
        state_key(parameter, entry): tensor
        for parameter, leaf in leaves.items()
        for entry, tensor in optimizer.state[leaf].items()
        if isinstance(tensor, Tensor)
    }


def learning_rate_at(step: int, optim: Any, total_steps: int | None) -> float:
    """Learning rate of a schedule position.

    Rises from 0 to ``lr`` over the warm-up, then stays, or falls to ``min_lr_ratio * lr`` at ``total_steps``.

    Args:
        step: calls of ``lr_scheduler_step`` so far.
        optim: the role's ``optim`` section.
        total_steps: length of the run, where ``optim.total_training_steps`` does not say.

    Raises:
        ConfigError: a falling schedule, or a warm-up given as a ratio, without a length.
    """
    peak = float(setting(optim, "lr", 1e-6))
    kind = setting(optim, "lr_scheduler_type", "constant")
    own_total = int(setting(optim, "total_training_steps", -1))
    total = own_total if own_total > 0 else total_steps
    warmup = int(setting(optim, "lr_warmup_steps", -1))
    ratio = float(setting(optim, "lr_warmup_steps_ratio", 0.0))
    if total is None and (kind != "constant" or (warmup < 0 and ratio > 0)):
        msg = (
            f"optim.lr_scheduler_type={kind!r} (lr_warmup_steps_ratio={ratio}) needs the length of the run; set "
            "optim.total_training_steps"
        )
        raise ConfigError(msg)
    if warmup < 0:
        warmup = int(ratio * (total or 0))
    if not setting(optim, "zero_indexed_step", True):
        step += 1
    if step < warmup:
        return peak * step / warmup
    if kind == "constant" or total is None:
        return peak
    progress = min(1.0, (step - warmup) / max(1, total - warmup))
    floor = float(setting(optim, "min_lr_ratio", 0.0))
    fall = 1 - progress
    if kind == "cosine":
        fall = 0.5 * (1 + math.cos(2 * math.pi * float(setting(optim, "num_cycles", 0.5)) * progress))
    return peak * (floor + (1 - floor) * fall)
