"""Only deterministic kernels while an engine computes; the switch is global to the process, so it is put back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

_WORKSPACE: Final = "CUBLAS_WORKSPACE_CONFIG"


def prepare_determinism() -> None:
    """Set what cuBLAS reads once, when it is first used in the process. An own choice of the user stays."""
    os.environ.setdefault(_WORKSPACE, ":4096:8")


@contextmanager
def deterministic_kernels(*, wanted: bool) -> Iterator[None]:
    """Inside, torch takes deterministic kernels and refuses operations that have none; nothing changes if not ``wanted``."""
    if not wanted:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    settings: Any = torch.utils.deterministic  # type stubs leave its attribute out
    had_benchmark, filled = torch.backends.cudnn.benchmark, settings.fill_uninitialized_memory
    torch.use_deterministic_algorithms(mode=True)
    torch.backends.cudnn.benchmark = False
    settings.fill_uninitialized_memory = False  # costs time, and nothing here reads such memory
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.backends.cudnn.benchmark = had_benchmark
        settings.fill_uninitialized_memory = filled
