"""The Ray cluster of a run: joined where there is one, otherwise started inside this process for as long as the run lasts."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rl_core.errors import ConfigError
from rl_core.runtime.ray.kin import child_ids, guard_daemons

if TYPE_CHECKING:
    from rl_core.config.ray import RayConfig

FORWARDED = (
    "RL_PLUGINS",
    "RL_BLOCK_PLUGINS",
    "HF_HUB_OFFLINE",
    "TOKENIZERS_PARALLELISM",
    "OMP_NUM_THREADS",
    "GLOO_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",
    "NCCL_IB_DISABLE",
    "NCCL_DEBUG",
)
"""Variables that every worker gets from the driver."""

_CONNECT_S = 15.0

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's own hint about a missing accelerator variable repeats in every process.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "1",
}
"""Defaults for a cluster that is started here."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster.

    Attributes:
        node_id: Ray's id.
        ip: its address.
        total: resource name -> amount.
        free: the same, what nobody holds now.
    """

    node_id: str
    ip: str
    total: Mapping[str, float]
    free: Mapping[str, float]


class Cluster:
    """The connection of this process to Ray."""

    def __init__(self, config: RayConfig, *, num_workers: int) -> None:
        """Join or start a cluster.

        Args:
            config: ``ray_kwargs``.
            num_workers: processes of the run; a cluster on this machine gets at least so many CPUs, because on the CPU
                workers outnumber cores on purpose.

        Raises:
            ConfigError: the cluster named cannot be reached.
        """
        import ray  # noqa: PLC0415 - layers above choose a runtime without loading Ray

        self._config = config
        self.started_here = False
        self.joined_before = ray.is_initialized()
        if self.joined_before:
            return
        # Ray reports every dead process on stdout, in its own words; the run's error says it once, with the reason.
        ray._private.worker._worker_logs_enabled = False
        options = config.ray_init
        address = options.address or os.environ.get("RAY_ADDRESS")
        common: dict[str, Any] = {
            "namespace": options.namespace,
            "runtime_env": dict(options.runtime_env) or None,
            "log_to_driver": False,
            "logging_level": logging.WARNING,
        }
        if address and address != "local":
            try:
                _check_answers(address)
                ray.init(address=address, **common)
            except (OSError, ValueError, RuntimeError) as error:
                msg = (
                    f"no Ray cluster answers at {address!r} (ray_kwargs.ray_init.address, or RAY_ADDRESS): {error}. Start one "
                    "with `ray start --head`, or leave the address out to run on this machine alone."
                )
                raise ConfigError(msg) from error
            _end_on_sigterm()
            return
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)
        before = child_ids()
        ray.init(
            address="local",
            num_cpus=options.num_cpus or max(os.cpu_count() or 1, num_workers),
            num_gpus=options.num_gpus,
            include_dashboard=False,
            **common,
        )
        guard_daemons(before)
        self.started_here = True
        _end_on_sigterm()

    def worker_environment(self, *, on_cuda: bool) -> dict[str, str]:
        """Variables that a worker's process gets before it loads anything.

        Those of ``ray_kwargs.ray_init.runtime_env.env_vars`` are Ray's to set; they win over what is forwarded.
        """
        given = self._config.ray_init.runtime_env.get("env_vars", {})
        forwarded = {name: os.environ[name] for name in FORWARDED if name in os.environ}
        if not on_cuda and "OMP_NUM_THREADS" not in forwarded:
            # Ray sets one thread for an actor that asks for a CPU or less; several workers share the cores here.
            forwarded["OMP_NUM_THREADS"] = "1"
        return {name: value for name, value in forwarded.items() if name not in given}

    def nodes(self) -> list[Node]:
        """Every node that is alive, by address."""
        import ray  # noqa: PLC0415 - as above

        free = ray._private.state.available_resources_per_node()
        nodes = [
            Node(entry["NodeID"], entry["NodeManagerAddress"], entry["Resources"], free.get(entry["NodeID"], {}))
            for entry in ray.nodes()
            if entry["Alive"]
        ]
        return sorted(nodes, key=lambda node: (node.ip, node.node_id))

    def worker_directory(self) -> str | None:
        """Where workers stand, so that relative paths mean there what they mean here; None: a folder that Ray unpacks."""
        return None if self._unpacks_a_folder else os.getcwd()

    def worker_import_path(self) -> tuple[str, ...]:
        """Where workers look for modules besides their own path; nothing of here where Ray unpacks a folder for them."""
        return () if self._unpacks_a_folder else tuple(sys.path)

    @property
    def _unpacks_a_folder(self) -> bool:
        return "working_dir" in self._config.ray_init.runtime_env

    def close(self) -> None:
        """Leave the cluster; end it if it was started here."""
        import ray  # noqa: PLC0415 - as above

        if not ray.is_initialized():
            return
        if self._config.timeline_json_file:
            ray.timeline(filename=self._config.timeline_json_file)
        if not self.joined_before:
            ray.shutdown()
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end_on_sigterm() -> None:
    """Let a scheduler's SIGTERM end the run as Ctrl-C does: Ray's own handler aborts the process where it stands."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def _check_answers(address: str) -> None:
    """Raise ``OSError`` unless a Ray cluster answers at ``host:port``: ``ray.init`` itself would try for ever."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "://" in address:
        return
    socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
    probe = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:
        healthy = subprocess.run(probe, capture_output=True, timeout=_CONNECT_S, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        healthy = False
    if not healthy:
        msg = f"something listens there, but it did not say within {_CONNECT_S:g} s that it is a healthy Ray cluster"
        raise OSError(msg)
