"""Worker processes on every node of a run: ending them for good, and reading what they have written."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rl_core.runtime.ray.kin import Identity, kill, with_kin

if TYPE_CHECKING:
    from rl_core.runtime.ray.health import Member

Item = TypeVar("Item")

_NODE_DEADLINE_S = 15.0

Stretch = tuple[str, str, int]
"""A worker's name, a file on its node, and the byte to read it from."""


def families(members: Iterable[Member]) -> dict[str, list[Identity]]:
    """By node, the processes of ``members`` and everything they have started; a node that does not answer is left out."""
    residents: dict[str, list[Identity]] = defaultdict(list)
    for member in members:
        residents[member.node_id].append((member.pid, member.born))
    return {node_id: found for node_id, found in _on_nodes(with_kin, residents).items() if found}


def end_processes(processes: Mapping[str, Sequence[Identity]], grace_s: float) -> None:
    """See that processes are gone.

    Args:
        processes: by node, as ``families`` gives them.
        grace_s: seconds they have left to go by themselves.
    """
    _on_nodes(kill, processes, grace_s)


def read_on_nodes(stretches: Mapping[str, Sequence[Stretch]], most: int) -> dict[str, str]:
    """What files hold from some byte on, by worker; files of a node that does not answer are left out.

    Args:
        stretches: by node.
        most: bytes of one file; of more, the newest are kept.
    """
    found: dict[str, str] = {}
    for texts in _on_nodes(read_stretches, stretches, most).values():
        found |= texts or {}
    return found


def read_stretches(stretches: Sequence[Stretch], most: int) -> dict[str, str]:
    """What files of this machine hold from some byte on, by worker, one file after another."""
    found: dict[str, str] = defaultdict(str)
    for worker, path, start in stretches:
        if not os.path.isfile(path):
            continue
        with open(path, "rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(start, end - most))
            found[worker] += file.read().decode("utf-8", errors="replace")
    return dict(found)


def _on_nodes(work: Callable[..., Any], items: Mapping[str, Sequence[Item]], *arguments: Any) -> dict[str, Any]:
    """Run ``work(items, *arguments)`` on each node; None where the node does not answer: it is gone, and they with it."""
    import ray  # noqa: PLC0415 - layers above choose a runtime without loading Ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415

    here = ray.get_runtime_context().get_node_id()
    remote = ray.remote(num_cpus=0, max_retries=0)(work)
    asked = {
        node_id: remote.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False)).remote(
            part, *arguments
        )
        for node_id, part in items.items()
        if node_id != here
    }
    answers: dict[str, Any] = {here: work(items[here], *arguments)} if here in items else {}
    for node_id, ref in asked.items():
        try:
            answers[node_id] = ray.get(ref, timeout=_NODE_DEADLINE_S)
        except (ray.exceptions.RayError, ray.exceptions.GetTimeoutError):
            answers[node_id] = None
    return answers
