"""One installed distribution that provides plugins, and what became of loading it.

Loading imports the distribution's plugin module, checks its hooks against the hookspecs and collects its records.
Whatever goes wrong is kept on the distribution, never swallowed: ``rl plugins list`` shows it, and asking for one of
its parts raises it with the cause chained.
"""

from __future__ import annotations

import difflib
import inspect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import pluggy

from rl_core.errors import PluginLoadError
from rl_core.plugins import hookspecs
from rl_core.plugins.hookspecs import HOOK_API, PROJECT_NAME, hookimpl
from rl_core.plugins.records import KINDS, Record
from rl_core.plugins.targets import find_target

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from importlib import metadata

StatusWord = Literal["ok", "blocked", "broken", "incompatible", "conflict"]

CORE_DISTRIBUTION: Final = "rl-core"
HOOK_NAMES: Final = tuple(name for name in vars(hookspecs) if name.startswith("rl_"))


@dataclass(frozen=True, slots=True)
class Status:
    """One word, and the reason when the word is not ``ok``."""

    word: StatusWord = "ok"
    reason: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether nothing stands in the way of using the part."""
        return self.word == "ok"

    def __str__(self) -> str:
        return f"{self.word}: {self.reason}" if self.reason else self.word


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution with the records it registered; frozen, so that readers need no lock."""

    name: str
    version: str
    module: str
    """Where its hooks live, for people to read."""
    status: Status = Status()
    records: tuple[Record, ...] = ()
    cause: Exception | None = None
    """What was raised while it was loaded."""
    plugin: object = None
    """The module or object with the hooks, when it has been loaded."""

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


class RecordsPlugin:
    """A plugin made of given records, for parts registered by hand (tests, notebooks)."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.records = tuple(records)

    @hookimpl
    def rl_plugins(self) -> tuple[Record, ...]:
        """Return the given records."""
        return self.records


def canonical_name(name: str) -> str:
    """The distribution name as package indexes compare it: lower case, runs of ``- _ .`` as one ``-``."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def metadata_field(dist: metadata.Distribution | None, field: str, default: str) -> str:
    """One field of an installed distribution's metadata; an interrupted installation leaves files without it."""
    if dist is None or field not in dist.metadata:
        return default
    return dist.metadata[field]


def new_plugin_manager() -> pluggy.PluginManager:
    """A plugin manager that knows the hookspecs and no plugin."""
    manager = pluggy.PluginManager(PROJECT_NAME)
    manager.add_hookspecs(hookspecs)
    return manager


def load_distribution(name: str, version: str, target: str, plugin: object = None) -> Distribution:
    """Import (unless ``plugin`` is given), verify and read one distribution.

    Args:
        name: distribution name.
        version: distribution version.
        target: entry point value, ``"module"`` or ``"module:attribute"``.
        plugin: the already imported module or object with the hooks.

    Returns:
        The distribution, whose status is ``ok``, ``broken`` or ``incompatible``.
    """
    if plugin is None:
        try:
            plugin = find_target(target)
        except PluginLoadError as error:
            return Distribution(name, version, target, Status("broken", str(error)), cause=error)
    hooks = _implemented_hooks(plugin)
    try:
        records = _collect_records(plugin, hooks)
    except Exception as error:
        reason = f"rl_plugins raised {type(error).__name__}: {error}"
        return Distribution(name, version, target, Status("broken", reason), cause=error)
    problem = next(_hook_problems(plugin, hooks), None) or next(_record_problems(records), None)
    valid = tuple(record for record in records if isinstance(record, Record))
    if problem is None:
        return Distribution(name, version, target, records=valid, plugin=plugin)
    # A plugin for a newer core may use hooks and kinds that this one lacks; the API version is then the real reason.
    verdicts = [*map(api_status, valid), Status("broken", problem)]
    return Distribution(name, version, target, next(s for s in verdicts if not s.is_ok), valid, plugin=plugin)


def api_status(record: Record) -> Status:
    """Compare the hook API of a record with core's: the major must be equal, the minor not newer."""
    major, minor = (int(part) for part in record.hook_api.split("."))
    if (major, minor) <= HOOK_API and major == HOOK_API[0]:
        return Status()
    provided = ".".join(map(str, HOOK_API))
    return Status("incompatible", f"needs hook API {record.hook_api}; {CORE_DISTRIBUTION} provides {provided}")


def _implemented_hooks(plugin: object) -> dict[str, str]:
    """Attribute of the plugin -> name of the hook that it implements, known or misspelt."""
    manager = new_plugin_manager()
    hooks = {}
    for attribute in dir(plugin):
        options = manager.parse_hookimpl_opts(plugin, attribute)
        if options is not None:
            hook = options.get("specname") or attribute
            # The author has said that this hook may belong to another version of core.
            if hook in HOOK_NAMES or not options.get("optionalhook"):
                hooks[attribute] = hook
    return hooks


def _collect_records(plugin: object, hooks: dict[str, str]) -> tuple[object, ...]:
    registering = [attribute for attribute, hook in hooks.items() if hook == "rl_plugins"]
    return tuple(record for attribute in registering for record in getattr(plugin, attribute)())


def _hook_problems(plugin: object, hooks: dict[str, str]) -> Iterator[str]:
    """Say what pluggy would accept without a word, or refuse only when the hook is called."""
    for name in HOOK_NAMES:
        if name not in hooks and inspect.isroutine(getattr(plugin, name, None)):
            yield f"function {name} lacks @hookimpl"
    for hook in hooks.values():
        if hook not in HOOK_NAMES:
            close = difflib.get_close_matches(hook, HOOK_NAMES, n=1)
            way_out = f"did you mean {close[0]}?" if close else f"the hooks are {', '.join(HOOK_NAMES)}"
            yield f"there is no hook {hook}; {way_out}"
    if not hooks:
        yield f"its plugin module implements no hook; the hooks are {', '.join(HOOK_NAMES)}"
    try:
        new_plugin_manager().register(plugin)
    except pluggy.PluginValidationError as error:
        yield " ".join(str(error).split())


def _record_problems(records: tuple[object, ...]) -> Iterator[str]:
    seen: set[tuple[str, str]] = set()
    for record in records:
        if not isinstance(record, Record):
            yield f"rl_plugins returned {type(record).__name__} {record!r}, which is no record"
            continue
        if record.kind not in KINDS:
            yield f"{record.name!r} is of kind {record.kind!r}, which this {CORE_DISTRIBUTION} does not know"
        for name in record.claims:
            if (record.kind, name) in seen:
                yield f"it registers {record.kind} {name!r} twice"
            seen.add((record.kind, name))
