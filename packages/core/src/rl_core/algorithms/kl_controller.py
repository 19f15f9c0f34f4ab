"""The coefficient of the KL penalty in the reward: fixed, or steered towards a target."""

from __future__ import annotations

import math
from typing import Any, Protocol

from rl_core.errors import CheckpointError, ConfigError, DataError

MAX_RELATIVE_ERROR = 0.2
"""The relative error of the KL is clipped to +-this before it moves the coefficient."""


class KLControllerConfig(Protocol):
    """The keys of ``algorithm.kl_ctrl``."""

    @property
    def type(self) -> str:
        """``fixed`` or ``adaptive``."""
        ...

    @property
    def kl_coef(self) -> float:
        """Coefficient (fixed), or its first value (adaptive)."""
        ...

    @property
    def target_kl(self) -> float:
        """KL per token that the adaptive controller steers to."""
        ...

    @property
    def horizon(self) -> float:
        """Number of sequences over which an error of 100 % would move the coefficient by 100 %."""
        ...


class KLController(Protocol):
    """A KL coefficient that may change after each step."""

    @property
    def value(self) -> float:
        """The coefficient to use now."""
        ...

    def update(self, current_kl: float, num_sequences: int) -> None:
        """Take in the mean KL of one step."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What resume needs."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        ...


class FixedKLController:
    """A constant coefficient. On resume the configured one holds, not the saved one."""

    def __init__(self, kl_coef: float) -> None:
        self._value = _checked("kl_coef", kl_coef, allow_zero=True)

    @property
    def value(self) -> float:
        """The coefficient."""
        return self._value

    def update(self, current_kl: float, num_sequences: int) -> None:
        """Change nothing.

        Raises:
            DataError: ``current_kl`` is not finite.
        """
        _require_finite(current_kl, self._value)

    def state_dict(self) -> dict[str, Any]:
        """Type and coefficient."""
        return {"type": "fixed", "value": self._value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Check that the state belongs to a fixed controller.

        Raises:
            CheckpointError: it was saved by another type.
        """
        _require_type("fixed", state)


class AdaptiveKLController:
    """A coefficient that rises while the KL is above its target and falls while it is below.

    After each step ``value *= 1 + clip(kl / target - 1, -0.2, 0.2) * num_sequences / horizon``.

    Args:
        kl_coef: first value, above 0 (it is only ever multiplied).
        target_kl: KL per token to steer to, above 0.
        horizon: in sequences, above 0; larger is slower.

    Raises:
        ConfigError: one of them is not above 0.

    Source: Ziegler et al. 2019, arXiv:1909.08593, section 2.2.
    """

    def __init__(self, kl_coef: float, target_kl: float, horizon: float) -> None:
        self._value = _checked("kl_coef", kl_coef)
        self._target = _checked("target_kl", target_kl)
        self._horizon = _checked("horizon", horizon)

    @property
    def value(self) -> float:
        """The coefficient to use now."""
        return self._value

    def update(self, current_kl: float, num_sequences: int) -> None:
        """Move the coefficient by one step's KL.

        Args:
            current_kl: mean KL per token of the step.
            num_sequences: responses in the step.

        Raises:
            DataError: ``current_kl`` is not finite; the coefficient stays.
            ConfigError: the horizon is so short that the coefficient would not stay above 0.
        """
        _require_finite(current_kl, self._value)
        error = min(max(current_kl / self._target - 1.0, -MAX_RELATIVE_ERROR), MAX_RELATIVE_ERROR)
        factor = 1.0 + error * num_sequences / self._horizon
        if factor <= 0:
            msg = (
                f"the adaptive KL coefficient would be multiplied by {factor:.4g}: horizon {self._horizon:g} is too "
                f"short for steps of {num_sequences} sequences. Set algorithm.kl_ctrl.horizon above "
                f"{MAX_RELATIVE_ERROR * num_sequences:g}."
            )
            raise ConfigError(msg)
        self._value *= factor

    def state_dict(self) -> dict[str, Any]:
        """Type and current coefficient."""
        return {"type": "adaptive", "value": self._value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the saved coefficient.

        Raises:
            CheckpointError: it was saved by another type.
        """
        _require_type("adaptive", state)
        self._value = float(state["value"])


def build_kl_controller(config: KLControllerConfig) -> KLController:
    """Make the controller that ``algorithm.kl_ctrl`` describes.

    Args:
        config: its keys.

    Raises:
        ConfigError: an unknown type, or a value that cannot work.
    """
    if config.type == "fixed":
        return FixedKLController(config.kl_coef)
    if config.type == "adaptive":
        return AdaptiveKLController(config.kl_coef, config.target_kl, config.horizon)
    msg = f"algorithm.kl_ctrl.type must be fixed or adaptive; found '{config.type}'."
    raise ConfigError(msg)


def _checked(name: str, value: float, *, allow_zero: bool = False) -> float:
    if not math.isfinite(value) or value < 0 or (value == 0 and not allow_zero):
        bound = "at least 0" if allow_zero else "above 0"
        msg = f"algorithm.kl_ctrl.{name} must be a finite number {bound}; found {value}."
        raise ConfigError(msg)
    return float(value)


def _require_finite(current_kl: float, value: float) -> None:
    if not math.isfinite(current_kl):
        msg = (
            f"the KL of this step is {current_kl}: log-probs of the policy or the reference are not finite. "
            f"The KL coefficient stays at {value:g}; look at the log-probs of this step."
        )
        raise DataError(msg)


def _require_type(expected: str, state: dict[str, Any]) -> None:
    found = state.get("type")
    if found != expected:
        msg = (
            f"the checkpoint holds the state of a KL controller of type {found!r}, the config asks for '{expected}'. "
            "Set algorithm.kl_ctrl.type to what the run was started with, or start a new run."
        )
        raise CheckpointError(msg)
