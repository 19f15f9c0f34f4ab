"""Resolve ``"module:attribute"``, and say precisely what is missing when that fails."""

from __future__ import annotations

import difflib
import importlib
from typing import Any

from rl_core.errors import PluginLoadError


def resolve_target(target: str, owner: str) -> Any:
    """Import the module of ``target`` and return its attribute.

    Args:
        target: ``"package.module:attribute"``; the attribute may be dotted, and may be absent to get the module.
        owner: who asks, for the message: ``"rollout 'acme' (rl-rollout-acme 1.2)"``.

    Raises:
        PluginLoadError: the module is absent, one of its own imports is, it fails while it is imported, or the
            attribute is not there. The cause is chained.
    """
    try:
        return find_target(target)
    except PluginLoadError as error:
        msg = f"{owner} does not load: {error}"
        raise PluginLoadError(msg) from error.__cause__


def find_target(target: str) -> Any:
    """``resolve_target`` for a caller that says itself who asks; the message is the bare reason."""
    module_name, _, path = target.partition(":")
    try:
        value: Any = importlib.import_module(module_name)
    except Exception as error:
        raise PluginLoadError(_import_failure(module_name, error)) from error
    for part in path.split(".") if path else ():
        try:
            value = getattr(value, part)
        except AttributeError as error:
            msg = f"module {module_name!r} has no {path!r}.{_close_to(part, value)}"
            raise PluginLoadError(msg) from error
    return value


def _import_failure(module_name: str, error: Exception) -> str:
    """Say whether the module itself, something it needs, or its own code is at fault."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return f"importing {module_name!r} raised {type(error).__name__}: {error}"
    missing = error.name
    if module_name == missing or module_name.startswith(f"{missing}."):
        return f"its module {missing!r} is not there; the installation is damaged or the name is wrong. Reinstall it."
    if missing.split(".")[0] == module_name.split(".")[0]:
        return f"its own module {missing!r}, which {module_name!r} imports, is not there. Reinstall it."
    return f"{module_name!r} imports {missing!r}, which is not installed. Install what provides {missing!r}."


def _close_to(name: str, value: object) -> str:
    matches = difflib.get_close_matches(name, dir(value), n=3)
    return f" Did you mean {', '.join(matches)}?" if matches else ""
