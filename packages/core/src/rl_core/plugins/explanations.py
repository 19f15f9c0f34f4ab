"""Messages for everything that can stand between a name and its part: what was asked, what was found, what to do."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from rl_core.errors import (
    PluginBlockedError,
    PluginError,
    PluginLoadError,
    PluginNotFoundError,
)
from rl_core.plugins.distributions import CORE_DISTRIBUTION, canonical_name
from rl_core.plugins.hints import known_distribution, known_names
from rl_core.plugins.hookspecs import HOOK_API
from rl_core.plugins.records import KINDS, Record, kind_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rl_core.plugins.distributions import Distribution, Status
    from rl_core.plugins.lookup import Entry, Lookup
    from rl_core.plugins.requirements import RequirementResult


def unknown_kind(kind: str) -> PluginNotFoundError:
    """There is no such kind of part."""
    close = difflib.get_close_matches(kind, KINDS, n=1)
    guess = f" Did you mean {close[0]!r}?" if close else ""
    return PluginNotFoundError(f"there is no kind of plugin {kind!r}.{guess}\n  The kinds are: {', '.join(KINDS)}.")


def conflict(subject: str, distributions: Sequence[Distribution]) -> str:
    """Several distributions claim ``subject``; says how to keep one."""
    removable = [found for found in distributions if found.name != CORE_DISTRIBUTION]
    others = sorted(removable, key=lambda found: found.name)[-1:] or list(distributions[-1:])
    times = "twice" if len(distributions) == 2 else f"{len(distributions)} times"
    names = " and ".join(str(found) for found in sorted(distributions, key=lambda found: found.name))
    return (
        f"{subject} is registered {times}: {names}.\n"
        f"  Uninstall one (pip uninstall {others[0].name}), or set RL_BLOCK_PLUGINS={others[0].name}."
    )


def incompatible(label: str, record: Record, distribution: Distribution, status: Status) -> str:
    """The hook API differs; says which side is behind."""
    behind = int(record.hook_api.split(".")[0]) < HOOK_API[0]
    side, package = ("the plugin", distribution.name) if behind else ("core", CORE_DISTRIBUTION)
    return f"{label} {status.reason}.\n  Upgrade {side}: pip install -U {package}"


def unmet_requirements(label: str, unmet: Iterable[RequirementResult]) -> str:
    """What the part is built on is absent or out of its range."""
    lines = [f"{label} cannot run here, what it is built on is absent or out of range."]
    for result in unmet:
        alternatives = [f"pip install '{part.strip()}'" for part in result.requirement.split("|")]
        lines.append(f"  Needs {result.requirement}; found {result.found}.")
        lines.append(f"  Install {'one' if len(alternatives) > 1 else 'it'}: {' or '.join(alternatives)}")
    return "\n".join(lines)


def missing(lookup: Lookup, kind: str, name: str) -> PluginError:
    """No record has that name: it is blocked, broken, in an unreadable distribution, not installed, or misspelt."""
    label = f"{kind_label(kind)} {name!r}"
    for distribution in lookup.distributions:
        if not distribution.status.is_ok and not distribution.records and _provides(distribution, kind, name):
            return _unreadable(label, distribution)
    lines = _first_line(lookup, kind, name, label)
    lines.append(_installed(kind, lookup.usable(kind)))
    others = [entry.record.kind for entry in lookup.entries() if entry.record.name == name]
    lines.extend(f"  There is {_article(other)} {kind_label(other)} of that name." for other in sorted(set(others)))
    unreadable = [found for found in lookup.distributions if not found.status.is_ok and not found.records]
    lines.extend(f"  Not readable, and may have it: {found} ({found.status})." for found in unreadable)
    error = PluginNotFoundError("\n".join(lines))
    error.__cause__ = next((found.cause for found in unreadable if found.cause is not None), None)
    return error


def _article(kind: str) -> str:
    return "an" if kind_label(kind)[0] in "aeio" else "a"


def _provides(distribution: Distribution, kind: str, name: str) -> bool:
    """Whether a distribution whose records are unknown is the likely home of the name."""
    dist = canonical_name(distribution.name)
    hinted = known_distribution(kind, name)
    return dist == hinted or f"-{canonical_name(name)}-" in f"-{dist}-"


def _unreadable(label: str, distribution: Distribution) -> PluginError:
    status = distribution.status
    error: PluginError
    if status.word == "blocked":
        error = PluginBlockedError(
            f"{label} is blocked: {distribution} is installed, but {status.reason}.\n"
            f"  Let it in: change RL_PLUGINS or RL_BLOCK_PLUGINS, or leave out --block-plugin {distribution.name}."
        )
    else:
        error = PluginLoadError(f"{label} is installed ({distribution}) but broken: {status.reason}")
        error.__cause__ = distribution.cause
    return error


def _first_line(lookup: Lookup, kind: str, name: str, label: str) -> list[str]:
    hinted = known_distribution(kind, name)
    if hinted is None:
        available = [claim for entry in lookup.usable(kind) for claim in entry.record.claims]
        close = difflib.get_close_matches(name, [*available, *known_names(kind)], n=3)
        if not close:
            return [f"{label} is not known."]
        guesses = (f"{guess} ({_how_to_get(kind, guess, available)})" for guess in dict.fromkeys(close))
        return [f"{label} is not known.", f"  Did you mean: {', '.join(guesses)}?"]
    holder = next((found for found in lookup.distributions if canonical_name(found.name) == hinted), None)
    if holder is not None:
        return [f"{label} is not in {holder}, which is installed.", f"  Upgrade it: pip install -U {hinted}"]
    return [f"{label} is not installed.", f"  Install it: pip install {hinted}"]


def _how_to_get(kind: str, name: str, available: Sequence[str]) -> str:
    return "installed" if name in available else f"pip install {known_distribution(kind, name)}"


def _installed(kind: str, entries: Sequence[Entry]) -> str:
    names = [f"{entry.record.name} ({entry.distribution})" for entry in entries]
    return f"  Installed {kind_label(kind, plural=True)}: {', '.join(names) or 'none'}."
