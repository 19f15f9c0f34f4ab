"""Where the controller of a run lives: in this process, or on the cluster that the run joins."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import torch

from rl_core.config.runtime_choice import cluster_address, runtime_name
from rl_core.runtime.ray.controller import run_on_cluster

if TYPE_CHECKING:
    from rl_core.config import RunTree

T = TypeVar("T")


def launch(config: RunTree, run: Callable[[], T]) -> T:
    """Call ``run`` where the controller of the run belongs.

    A run that joins a Ray cluster is controlled from there, so it outlives the login shell's memory limits and sits next to
    the workers. One that starts its own Ray, or has none, and one whose process is part of a cluster already, is controlled
    from here: its output and a debugger are at hand.

    Args:
        config: of the run.
        run: the whole run; picklable.

    Raises:
        RlError: what ended the run.
    """
    uses_ray = runtime_name(config, has_cuda=torch.cuda.is_available()) == "ray"
    if not uses_ray or cluster_address(config) is None:
        return run()
    import ray  # noqa: PLC0415 - heavy, and most runs on one machine go without

    return run() if ray.is_initialized() else run_on_cluster(config.ray_kwargs, run)
