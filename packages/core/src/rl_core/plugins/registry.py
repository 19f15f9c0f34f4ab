"""The registry: every plugin of this process, found by kind and name.

``get_registry()`` reads the entry points once a process; it runs the same way in the driver and in every worker, and
has no effect beyond importing the plugins' light modules. Parts themselves are imported by ``load``.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rl_core.errors import PluginApiError, PluginConflictError, PluginError, PluginLoadError
from rl_core.plugins import explanations, tables
from rl_core.plugins.discovery import find_candidates, load_candidates
from rl_core.plugins.distributions import (
    CORE_DISTRIBUTION,
    Distribution,
    RecordsPlugin,
    Status,
    canonical_name,
    load_distribution,
    new_plugin_manager,
)
from rl_core.plugins.lookup import Entry, Lookup
from rl_core.plugins.records import KINDS, BackendRecord, PolicyLossRecord, Record
from rl_core.plugins.selection import Selection
from rl_core.plugins.targets import resolve_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import ModuleType

    from rl_core.plugins.pairing import Pairing
    from rl_core.plugins.requirements import RequirementResult


class Registry:
    """Plugins of one process. Safe to use from several threads.

    Args:
        selection: which distributions are let in; None reads ``RL_PLUGINS`` and ``RL_BLOCK_PLUGINS``.
    """

    def __init__(self, selection: Selection | None = None) -> None:
        self.selection = Selection.from_environment() if selection is None else selection
        self._lock = threading.RLock()
        self._manager = new_plugin_manager()
        self._lookup = Lookup(())

    def load_entry_points(self) -> None:
        """Load every installed distribution that has plugins, one by one; calling it again changes nothing.

        Raises:
            PluginLoadError: core's own entry point is absent, so nothing can work.
        """
        found = load_candidates(find_candidates(), self.selection)
        if CORE_DISTRIBUTION not in {canonical_name(distribution.name) for distribution in found}:
            msg = (
                f"{CORE_DISTRIBUTION} is imported but not installed: its entry point is not there.\n"
                f"  Install it: pip install {CORE_DISTRIBUTION}, or from source pip install -e packages/core"
            )
            raise PluginLoadError(msg)
        with self._lock:
            known = {canonical_name(distribution.name) for distribution in self._lookup.distributions}
            self._add([new for new in found if canonical_name(new.name) not in known])

    def register_distribution(
        self, name: str, version: str, plugin: Iterable[Record] | ModuleType | object
    ) -> Distribution:
        """Register by a call what an installed distribution registers by its entry point.

        For tests and notebooks. It takes the same path, so a faulty plugin becomes ``broken`` here too and does not
        raise. ``RL_BLOCK_PLUGINS`` applies; ``RL_PLUGINS`` does not, as the caller has already chosen.

        Args:
            name: distribution name.
            version: distribution version.
            plugin: records, or a module or object that implements hooks.

        Raises:
            PluginConflictError: another plugin is registered under this distribution name. The same one again is fine.
        """
        if not hasattr(plugin, "rl_plugins") and isinstance(plugin, (list, tuple, set, frozenset)):
            plugin = RecordsPlugin(plugin)
        target = getattr(plugin, "__name__", type(plugin).__name__)
        reason = self.selection.reason_against(name, explicit=True)
        if reason is not None:
            new = Distribution(name, version, target, Status("blocked", reason))
        else:
            new = load_distribution(name, version, target, plugin)
        with self._lock:
            for old in self._lookup.distributions:
                if canonical_name(old.name) != canonical_name(name):
                    continue
                if (old.version, old.records, old.module) == (new.version, new.records, new.module):
                    return old
                msg = (
                    f"distribution {name!r} cannot be registered with version {version}: {old} is registered already."
                    "\n  Use another name, or start from a fresh registry (reset_registry())."
                )
                raise PluginConflictError(msg)
            return self._add([new])[0]

    def _add(self, distributions: Iterable[Distribution]) -> list[Distribution]:
        added = [self._with_hooks(distribution) for distribution in distributions]
        self._lookup = Lookup([*self._lookup.distributions, *added])
        return added

    def _with_hooks(self, distribution: Distribution) -> Distribution:
        if not distribution.status.is_ok:
            return distribution
        owner = self._manager.get_name(distribution.plugin)
        if owner is not None:
            status = Status("broken", f"its plugin module {distribution.module} is registered by {owner} already")
            return replace(distribution, status=status)
        self._manager.register(distribution.plugin, name=canonical_name(distribution.name))
        return distribution

    @property
    def hook(self) -> Any:
        """The observer hooks of every usable plugin: ``registry.hook.rl_step_started(step=1)``."""
        return self._manager.hook

    @property
    def lookup(self) -> Lookup:
        """What is registered now, as an immutable view."""
        return self._lookup

    @property
    def distributions(self) -> tuple[Distribution, ...]:
        """Every distribution that has plugins, usable or not, by name."""
        return self._lookup.distributions

    def notes(self) -> tuple[str, ...]:
        """Sentences about selected distributions that are not installed."""
        return self.selection.unknown(distribution.name for distribution in self.distributions)

    def names(self, kind: str) -> tuple[str, ...]:
        """Sorted names (without aliases) that ``record`` gives; an engine they need may still be absent."""
        _check_kind(kind)
        return tuple(sorted(entry.record.name for entry in self._lookup.usable(kind)))

    def records(self, kind: str) -> tuple[Record, ...]:
        """The records behind ``names``, in the same order."""
        return tuple(self.record(kind, name) for name in self.names(kind))

    def record(self, kind: str, name: str) -> Record:
        """The record of a name or alias; imports nothing.

        Raises:
            PluginNotFoundError: not installed, or misspelt.
            PluginBlockedError: installed, but kept out.
            PluginConflictError: two distributions claim the name.
            PluginLoadError: its distribution is broken; the cause is chained.
            PluginApiError: it was written for another hook API.
        """
        return self.entry(kind, name).record

    def entry(self, kind: str, name: str) -> Entry:
        """The record together with its distribution; raises what ``record`` raises."""
        _check_kind(kind)
        return self._lookup.require(kind, name)

    def status(self, entry: Entry) -> Status:
        """The status of one registered record, engines included, as ``rl plugins list`` shows it."""
        status = self._lookup.status(entry)
        unmet = [result for result in self.requirements(entry.record) if not result.satisfied] if status.is_ok else []
        if unmet:
            return Status("incompatible", f"needs {', '.join(map(str, unmet))}")
        return status

    def requirements(self, record: Record) -> tuple[RequirementResult, ...]:
        """How each requirement of a record compares with this environment."""
        if not record.requires:
            return ()
        # Reads packaging, which costs as much as everything else here and is not needed for most records.
        from rl_core.plugins.requirements import check_requirements  # noqa: PLC0415

        return check_requirements(record.requires)

    def require(self, kind: str, name: str) -> Record:
        """The record of a part that can be loaded here, as far as that is known without importing it.

        Raises:
            PluginError: what ``load`` raises before it imports anything.
        """
        entry = self.entry(kind, name)
        self._check_requirements(entry)
        return entry.record

    def load(self, kind: str, name: str) -> Any:
        """Import the part itself, after comparing its requirements with what is installed.

        Raises:
            PluginApiError: as ``record``, or an engine that it needs is absent or out of range.
            PluginLoadError: as ``record``, or its code does not import; the cause is chained.
            PluginError: whatever else ``record`` raises.
        """
        entry = self.entry(kind, name)
        self._check_requirements(entry)
        return resolve_target(entry.record.target, entry.label)

    def load_config(self, kind: str, name: str) -> type | None:
        """The configuration dataclass of a part, or None if it has no keys; needs no engine."""
        entry = self.entry(kind, name)
        if entry.record.config is None:
            return None
        config: type = resolve_target(entry.record.config, f"the configuration of {entry.label}")
        return config

    def load_tokenizer(self, backend: str) -> Callable[..., Any] | None:
        """The tokenizer loader that a backend brings, or None to use the model's."""
        entry = self.entry("backend", backend)
        if not isinstance(entry.record, BackendRecord) or entry.record.tokenizer is None:
            return None
        self._check_requirements(entry)
        tokenizer: Callable[..., Any] = resolve_target(entry.record.tokenizer, f"the tokenizer of {entry.label}")
        return tokenizer

    def load_memory(self, kind: str, name: str) -> Callable[..., Any] | None:
        """What predicts the memory of a backend or rollout, or None if nothing does; needs no engine."""
        entry = self.entry(kind, name)
        target = getattr(entry.record, "memory", None)
        if target is None:
            return None
        predict: Callable[..., Any] = resolve_target(target, f"the memory model of {entry.label}")
        return predict

    def load_prepare(self, policy_loss: str) -> Callable[..., Any] | None:
        """What a policy loss computes over all rows of a step, or None if it works on each shard alone."""
        entry = self.entry("policy_loss", policy_loss)
        if not isinstance(entry.record, PolicyLossRecord) or entry.record.prepare is None:
            return None
        self._check_requirements(entry)
        prepare: Callable[..., Any] = resolve_target(entry.record.prepare, f"the preparation of {entry.label}")
        return prepare

    def pairing(self, backend: str, rollout: str, transports: Sequence[str] | None = None) -> Pairing:
        """Choose the resharding that joins a backend and a rollout; see ``rl_core.plugins.pairing`` for the rule.

        Args:
            backend: name or alias of a backend.
            rollout: name or alias of a rollout.
            transports: those that work here, the preferred one first; None takes all as possible.

        Raises:
            PluginNotFoundError: an engine is not installed, or no resharding fits.
            PluginConflictError: two distributions have an equally specific one.
        """
        # Reads packaging through the requirements, as requirements() above.
        from rl_core.plugins.pairing import choose_pairing  # noqa: PLC0415

        names = self.record("backend", backend).name, self.record("rollout", rollout).name
        return choose_pairing(self._lookup, *names, transports)

    def plugin_table(self) -> list[dict[str, str]]:
        """Rows ``{name, dist, version, kind}`` to send to the workers; see ``compare_tables``."""
        return tables.plugin_table(self._lookup)

    def _check_requirements(self, entry: Entry) -> None:
        unmet = [result for result in self.requirements(entry.record) if not result.satisfied]
        if unmet:
            raise PluginApiError(explanations.unmet_requirements(entry.label, unmet))


_state_lock = threading.RLock()
_registry: Registry | None = None
_is_loading = False


def get_registry() -> Registry:
    """The registry of this process, read from the entry points on the first call.

    Raises:
        PluginError: a plugin module asks for the registry while it is being imported for it.
    """
    global _registry, _is_loading
    with _state_lock:
        if _registry is not None:
            return _registry
        if _is_loading:
            msg = "get_registry() was called while plugins are being loaded; a plugin module may only declare records."
            raise PluginError(msg)
        _is_loading = True
        try:
            registry = Registry()
            registry.load_entry_points()
        finally:
            _is_loading = False
        _registry = registry
        return registry


def reset_registry() -> None:
    """Forget the registry, so that the next ``get_registry()`` reads the environment again; for tests and the CLI."""
    global _registry
    with _state_lock:
        _registry = None


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise explanations.unknown_kind(kind)
