"""Optimizers and learning-rate schedules by name, from a role's ``optim`` section."""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

import torch
from rl_core.errors import ConfigError, PluginNotFoundError
from rl_core.plugins import get_registry
from torch import Tensor
from torch.optim import Optimizer

SCHEDULES: Final = ("constant", "linear", "cosine")
_HOW: Final = {"fused", "foreach", "capturable", "differentiable"}
"""Arguments of torch's optimizers that choose how a step is computed."""


def setting(optim: Any, name: str, default: Any) -> Any:
    """A value of an ``optim`` section, which may be a dataclass, a mapping or any object with attributes."""
    value = optim.get(name) if isinstance(optim, Mapping) else getattr(optim, name, None)
    return default if value is None else value


def make_optimizer(parameters: Iterable[Tensor], optim: Any) -> Optimizer:
    """The optimizer that ``optim.optimizer`` names: a plugin's, otherwise a class in ``optim.optimizer_impl``.

    Of ``lr``, ``weight_decay`` and ``betas`` it gets those that it takes; ``override_optimizer_config`` is passed as it is.

    Args:
        parameters: to train.
        optim: the section.

    Raises:
        ConfigError: nobody has that name, or it does not take an argument of ``override_optimizer_config``.
    """
    name = str(setting(optim, "optimizer", "AdamW"))
    try:
        factory = get_registry().load("optimizer", name)
    except PluginNotFoundError:
        return _from_module(parameters, name, optim)
    return cast("Callable[[Iterable[Tensor], Any], Optimizer]", factory)(parameters, optim)


def _from_module(parameters: Iterable[Tensor], name: str, optim: Any) -> Optimizer:
    module_name = str(setting(optim, "optimizer_impl", "torch.optim"))
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        msg = f"optim.optimizer_impl is {module_name!r}, which cannot be imported: {error}"
        raise ConfigError(msg) from error
    cls = getattr(module, name, None)
    if not (isinstance(cls, type) and issubclass(cls, Optimizer)):
        known = [key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, Optimizer)]
        close = difflib.get_close_matches(name, known, n=3) or sorted(known)
        msg = (
            f"optim.optimizer is {name!r}, but neither a plugin nor {module_name} has an optimizer of that name; "
            f"closest: {', '.join(close)}"
        )
        raise ConfigError(msg)
    common = {
        "lr": float(setting(optim, "lr", 1e-6)),
        "weight_decay": float(setting(optim, "weight_decay", 0.0)),
        "betas": tuple(setting(optim, "betas", (0.9, 0.999))),
    }
    accepted = inspect.signature(cls).parameters
    own = dict(setting(optim, "override_optimizer_config", {}))
    parameters = list(parameters)
    if (
        "fused" in accepted
        and not own.keys() & _HOW
        and all(_can_be_fused(name, parameter) for parameter in parameters)
    ):
        common["fused"] = (
            True  # by itself torch takes one operation after the other, on a CPU one tensor after the other
        )
    arguments = {key: value for key, value in common.items() if key in accepted} | own
    try:
        return cast("Callable[..., Optimizer]", cls)(parameters, **arguments)
    except (TypeError, ValueError) as error:
        msg = f"{module_name}.{name} refuses its settings {arguments}: {error}. See optim.override_optimizer_config"
        raise ConfigError(msg) from error


_FUSED_WHEN_SHARDED: Final = {"Adam", "AdamW"}
"""Optimizers whose fused operation every supported torch knows for sharded parameters."""


def _can_be_fused(name: str, parameter: Tensor) -> bool:
    is_plain = type(parameter) in (Tensor, torch.nn.Parameter)
    is_known = is_plain or (parameter.device.type == "cuda" and name in _FUSED_WHEN_SHARDED)
    return is_known and parameter.device.type in ("cpu", "cuda") and parameter.is_floating_point()


def check_schedule(optim: Any, total_training_steps: int | None) -> None:
    """Refuse a schedule that ``learning_rate_at`` cannot follow; see there.

    Raises:
        ConfigError: it has an unknown shape, or lacks the length of the run.
    """
    shape = setting(optim, "lr_scheduler_type", "constant")
    if shape not in SCHEDULES:
        msg = f"optim.lr_scheduler_type is {shape!r}; choose one of {', '.join(SCHEDULES)}"
        raise ConfigError(msg)
    learning_rate_at(0, optim, total_training_steps)


def learning_rate_at(step: int, optim: Any, total_training_steps: int | None) -> float:
    """Learning rate after ``step`` trainer steps.

    Rises from 0 over the warm-up, then stays at ``lr``, or falls to ``min_lr_ratio * lr`` at the end of the run::

        linear   lr * (m + (1 - m) * (1 - p))                        p = share of the steps after the warm-up
        cosine   lr * (m + (1 - m) * (1 + cos(2 pi num_cycles p)) / 2)   m = min_lr_ratio

    Args:
        step: trainer steps done; counts one more where ``zero_indexed_step`` is off.
        optim: the role's ``optim`` section.
        total_training_steps: length of the run, where ``optim.total_training_steps`` does not say.

    Raises:
        ConfigError: a falling schedule, or a warm-up given as a share, of a run without a length.

    Source: Loshchilov & Hutter 2017, arXiv:1608.03983, eq. 5, with one period and a warm-up.
    """
    peak = float(setting(optim, "lr", 1e-6))
    shape = setting(optim, "lr_scheduler_type", "constant")
    own_total = int(setting(optim, "total_training_steps", -1))
    total = own_total if own_total > 0 else total_training_steps
    warmup = int(setting(optim, "lr_warmup_steps", -1))
    warmup_share = float(setting(optim, "lr_warmup_steps_ratio", 0.0)) if warmup < 0 else 0.0
    if total is None and (shape != "constant" or warmup_share > 0):
        msg = (
            f"optim.lr_scheduler_type={shape!r} with lr_warmup_steps_ratio={warmup_share} depends on the length of the "
            "run, which nobody gave; set optim.total_training_steps"
        )
        raise ConfigError(msg)
    if warmup < 0:
        warmup = int(warmup_share * (total or 0))
    if not setting(optim, "zero_indexed_step", True):
        step += 1
    if step < warmup:
        return peak * step / warmup
    if shape == "constant" or total is None:
        return peak
    done = min(1.0, (step - warmup) / max(1, total - warmup))
    floor = float(setting(optim, "min_lr_ratio", 0.0))
    height = 1 - done
    if shape == "cosine":
        height = 0.5 * (1 + math.cos(2 * math.pi * float(setting(optim, "num_cycles", 0.5)) * done))
    return peak * (floor + (1 - floor) * height)


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """Give every parameter group the rate ``rate``."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
