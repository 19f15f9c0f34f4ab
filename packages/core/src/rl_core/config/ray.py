"""``ray_kwargs.*``: how a Ray cluster is started or joined."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rl_core.config.node import Node, free_form, number


@dataclass
class RayInitConfig(Node):
    """Arguments of ``ray.init``."""

    address: str | None = None
    """Cluster to join; null joins the one ``RAY_ADDRESS`` names, or starts one on this machine."""

    num_cpus: int | None = number(None, ge=1)
    """CPUs of a cluster that is started here; null takes all."""

    num_gpus: int | None = number(None, ge=0)
    """GPUs of a cluster that is started here; null takes all that are seen."""

    namespace: str | None = None
    """Ray namespace of the run's actors."""

    runtime_env: dict[str, Any] = free_form()
    """Environment of the workers, passed as it is. Values under ``env_vars`` are never printed or logged."""


@dataclass
class RayConfig(Node):
    """Ray."""

    ray_init: RayInitConfig = field(default_factory=RayInitConfig)
    """Arguments of ``ray.init``."""

    timeline_json_file: str | None = None
    """Write Ray's timeline to this file at the end."""
