"""Stands in for SGLang's CUDA kernels in the engines test environment; nothing on the CPU path calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name.startswith("__"):
        raise AttributeError(name)

    def kernel(*args: object, **kwargs: object) -> NoReturn:
        msg = f"sgl_kernel.{name} was called, but this is the stand-in for machines without a GPU"
        raise NotImplementedError(msg)

    return kernel
