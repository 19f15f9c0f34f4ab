"""What of the sandbox works on this machine, found by making one."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from rl_rewards.sandbox.errors import SandboxError
from rl_rewards.sandbox.local import Sandbox
from rl_rewards.sandbox.results import Limits

LAYERS = ("namespaces", "landlock", "seccomp")

_PROCESSES = 8
_COUNT_FORKS = """
import os, time
made = 0
try:
    while made < 30:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        made += 1
except OSError:
    pass
print(made)
"""


@dataclass(frozen=True, slots=True)
class SandboxSupport:
    """What works here.

    Attributes:
        layers: ``namespaces``, ``landlock`` and ``seccomp`` -> whether they can be used.
        reasons: why not, for those that cannot.
        counts_memory: memory of all processes of a run can be counted.
        limits_processes: the number of processes is limited, for this user too.
    """

    layers: Mapping[str, bool]
    reasons: Mapping[str, str]
    counts_memory: bool
    limits_processes: bool

    @property
    def protections(self) -> dict[str, tuple[str, ...]]:
        """What code is kept from -> the layers that do it here; without one, it is not."""
        answers = {
            "reading and changing files": ("namespaces", "landlock"),
            "filling the disk": ("namespaces",),
            "using the network": ("namespaces", "seccomp"),
            "reaching other processes": ("namespaces",),
            "leaving processes behind": ("namespaces",),
            "using rarely needed system calls": ("seccomp",),
        }
        found = {what: tuple(layer for layer in layers if self.layers[layer]) for what, layers in answers.items()}
        found["starting processes without end"] = ("limit per user id",) if self.limits_processes else ()
        found["taking memory with many processes"] = ("count of the supervisor",) if self.counts_memory else ()
        return found

    @property
    def missing(self) -> tuple[str, ...]:
        """What code is not kept from here."""
        return tuple(what for what, layers in self.protections.items() if not layers)

    def require(self, *, allow_weaker: bool = False) -> None:
        """Refuse where something is missing.

        Raises:
            SandboxError: it is, and ``allow_weaker`` is false; or no program can be run at all.
        """
        if not any(self.layers.values()):
            msg = f"the code sandbox does not work here: {self._why()}"
            raise SandboxError(msg)
        if self.missing and not allow_weaker:
            msg = (
                f"the code sandbox would not keep code from {'; '.join(self.missing)}. {self._why()}. Run where this works "
                "(a container needs permission for user namespaces, or CAP_SYS_ADMIN), name a service with "
                "reward_model.sandbox_fusion.url, or accept it with reward_model.sandbox_fusion.allow_weaker=true"
            )
            raise SandboxError(msg)

    def _why(self) -> str:
        return "; ".join(f"{layer}: {reason}" for layer, reason in self.reasons.items()) or "every layer works"


@functools.cache
def probe() -> SandboxSupport:
    """Make a sandbox and see; once in a process.

    Tries all layers together, and each of them alone only if that fails.
    """
    everything = dict.fromkeys(LAYERS, True)
    try:
        return _supported(everything, {})
    except SandboxError:
        reasons = {layer: reason for layer in LAYERS if (reason := _refusal(layer))}
    layers = {layer: layer not in reasons for layer in LAYERS}
    try:
        return _supported(layers, reasons)
    except SandboxError as error:
        reasons["what is left"] = str(error)
        return SandboxSupport(dict.fromkeys(LAYERS, False), reasons, counts_memory=False, limits_processes=False)


def _supported(layers: Mapping[str, bool], reasons: Mapping[str, str]) -> SandboxSupport:
    limits = Limits(processes=_PROCESSES)
    with Sandbox(_COUNT_FORKS, limits=limits, layers=layers) as box:
        result = box.run()
        forks = int(result.stdout) if result.status == "ok" else None
        if forks is None:
            msg = f"a test program in the sandbox ended with {result.status}: {result.stderr.strip()[-300:]}"
            raise SandboxError(msg)
        return SandboxSupport(layers, reasons, counts_memory=box.counts_memory, limits_processes=forks < _PROCESSES)


def _refusal(layer: str) -> str | None:
    """Why a layer cannot be used; None if it can."""
    try:
        with Sandbox("", limits=Limits(), layers={name: name == layer for name in LAYERS}) as box:
            result = box.run()
    except SandboxError as error:
        return str(error).rpartition("could not be made: ")[2]
    return None if result.status == "ok" else f"a program ended with {result.status}: {result.stderr.strip()[-300:]}"
