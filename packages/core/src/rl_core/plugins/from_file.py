"""Functions and classes that a configuration names by file."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from rl_core.errors import ConfigError


def load_from_file(path: Path, name: str, section: str) -> Any:
    """What ``path`` calls ``name``. The file is executed.

    Args:
        path: a Python file; ``~`` is the home folder.
        name: of a function or class in it.
        section: the configuration's section with ``path`` and ``name``, for errors and as the name of the module.

    Raises:
        ConfigError: there is no such file, it cannot be executed, or it has nothing of that name that can be called.
    """
    module = module_from_file(path, f"{section}.path")
    found = getattr(module, name, None)
    if not callable(found):
        names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        msg = f"{section}.name is {name!r}, but {path.expanduser()} has no such function or class; it has {', '.join(names)}"
        raise ConfigError(msg)
    return found


def module_from_file(path: Path, key: str) -> ModuleType:
    """The module that a Python file makes when it is executed.

    Args:
        path: the file; ``~`` is the home folder.
        key: the configuration's key with the path, for errors; what stands before ``.path`` names the module.

    Raises:
        ConfigError: there is no such file, or it cannot be executed.
    """
    path = path.expanduser()
    if not path.is_file():
        msg = f"{key} is {path}: no such file"
        raise ConfigError(msg)
    spec = importlib.util.spec_from_file_location(f"rl_{key.removesuffix('.path').replace('.', '_')}", path)
    if spec is None or spec.loader is None:
        msg = f"{key} is {path}: not a Python file"
        raise ConfigError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look a class's module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        msg = f"{key} {path} could not be loaded: {type(error).__name__}: {error}"
        raise ConfigError(msg) from error
    return module
