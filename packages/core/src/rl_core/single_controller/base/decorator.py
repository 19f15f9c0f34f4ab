"""``register``: marks a worker method as callable by the controller, and says how a call is split and gathered.

The decorator only attaches a ``MethodSpec``; the function stays what it is, so inside a worker it is called as any
other. Groups read the specs and bind a method of the same name (``worker_group``).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

from rl_core.plugins import get_registry
from rl_core.single_controller.base.dispatch import Dispatch, as_dispatch_mode
from rl_core.single_controller.base.mesh import (
    make_mini_batch_dispatch_fn,
    make_nd_compute_dataproto_dispatch_fn,
)
from rl_core.single_controller.base.mode import DispatchMode

__all__ = [
    "Dispatch",
    "DispatchMode",
    "Execute",
    "MethodSpec",
    "make_mini_batch_dispatch_fn",
    "make_nd_compute_dataproto_dispatch_fn",
    "method_specs",
    "register",
    "resolve_mode",
]

SPEC_ATTRIBUTE: Final = "__rl_method_spec__"

F = TypeVar("F", bound=Callable[..., Any])
ModeLike = Dispatch | DispatchMode | Mapping[str, Any] | str


class Execute(Enum):
    """Which workers run the method."""

    ALL = "all"
    """All that the dispatch mode has a call for."""
    RANK_ZERO = "rank_zero"
    """Rank 0; its output is the result."""


@dataclass(frozen=True, slots=True)
class MethodSpec:
    """What ``register`` was told about a method; see there."""

    dispatch_mode: ModeLike
    execute_mode: Execute
    blocking: bool
    materialize_futures: bool


UNSPLIT_MODES: Final = (Dispatch.RANK_ZERO, Dispatch.ONE_TO_ALL, Dispatch.ALL_TO_ALL)


def register(
    dispatch_mode: ModeLike = Dispatch.ALL_TO_ALL,
    execute_mode: Execute = Execute.ALL,
    blocking: bool = True,
    materialize_futures: bool = True,
) -> Callable[[F], F]:
    """Mark a worker method, plain or ``async``, as callable through its group.

    Args:
        dispatch_mode: a member of ``Dispatch``; a mode object, as the ``make_*_dispatch_fn`` functions return; a dict
            with ``dispatch_fn`` and ``collect_fn``; or the name of a plugin's dispatch mode.
        execute_mode: RANK_ZERO goes with the modes that do not split a batch; with others, rows would be lost.
        blocking: False returns at once: a ``DataProtoFuture`` where the result would be a DataProto, a list of
            futures where it would be a list, otherwise one future.
        materialize_futures: arguments that are futures are waited for on the worker, so results go from worker to
            worker without passing the controller; False hands the futures over.

    Raises:
        TypeError: an argument is of a wrong type.
        ValueError: ``execute_mode`` contradicts ``dispatch_mode``.
    """
    if not isinstance(execute_mode, Execute):
        msg = f"execute_mode is a member of Execute; got {execute_mode!r}"
        raise TypeError(msg)
    if isinstance(dispatch_mode, str):
        dispatch_mode = Dispatch.__members__.get(dispatch_mode, dispatch_mode)
    else:
        if inspect.isfunction(dispatch_mode):
            msg = f"write @register() with parentheses above {dispatch_mode.__qualname__}"
            raise TypeError(msg)
        as_dispatch_mode(dispatch_mode)
    if execute_mode is Execute.RANK_ZERO and dispatch_mode not in UNSPLIT_MODES:
        msg = (
            f"Execute.RANK_ZERO calls one worker, but dispatch mode {dispatch_mode!r} splits the work over all; use "
            f"{', '.join(mode.name for mode in UNSPLIT_MODES)}"
        )
        raise ValueError(msg)
    spec = MethodSpec(dispatch_mode, execute_mode, blocking, materialize_futures)

    def mark(function: F) -> F:
        setattr(function, SPEC_ATTRIBUTE, spec)
        return function

    return mark


def method_specs(cls: type) -> dict[str, MethodSpec]:
    """Every registered method of ``cls``.

    An override in a subclass keeps the registration of the method it overrides, unless it is registered anew.
    """
    specs: dict[str, MethodSpec] = {}
    for name in dir(cls):
        owners = (vars(base)[name] for base in cls.__mro__ if name in vars(base))
        spec = next((getattr(owner, SPEC_ATTRIBUTE) for owner in owners if hasattr(owner, SPEC_ATTRIBUTE)), None)
        if spec is not None and callable(getattr(cls, name)):
            specs[name] = spec
    return specs


def resolve_mode(spec: MethodSpec) -> DispatchMode:
    """The mode that a group uses for a method.

    Raises:
        PluginError: the mode is a plugin's, and the plugin is not there or does not load.
    """
    if spec.execute_mode is Execute.RANK_ZERO:
        return as_dispatch_mode(Dispatch.RANK_ZERO)
    if isinstance(spec.dispatch_mode, str):
        return as_dispatch_mode(get_registry().load("dispatch_mode", spec.dispatch_mode))
    return as_dispatch_mode(spec.dispatch_mode)
