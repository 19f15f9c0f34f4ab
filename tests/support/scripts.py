"""Loads a script of `ci/` as a module, without making that folder importable for everyone."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def load(path: str) -> ModuleType:
    """The module of a script given by its path from the root; scripts beside it can be imported by it."""
    file = ROOT / path
    spec = importlib.util.spec_from_file_location(f"_script_{file.stem}", file)
    if spec is None or spec.loader is None:
        msg = f"{file} cannot be loaded as a Python module"
        raise ImportError(msg)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(file.parent))
    return module
