"""The plugin table of a process, and how two of them differ.

The driver sends its table to every worker. A worker with another table would build other parts under the same names,
so it fails at start, with the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_core.plugins.records import kind_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rl_core.plugins.lookup import Lookup


def plugin_table(lookup: Lookup) -> list[dict[str, str]]:
    """Rows ``{name, dist, version, kind}`` of every part that may be asked for, sorted; plain data."""
    rows = [
        {
            "name": entry.record.name,
            "dist": entry.distribution.name,
            "version": entry.distribution.version,
            "kind": entry.record.kind,
        }
        for entry in lookup.entries()
        if lookup.status(entry).is_ok
    ]
    return sorted(rows, key=lambda row: (row["kind"], row["name"]))


def compare_tables(driver: Iterable[Mapping[str, str]], worker: Iterable[Mapping[str, str]]) -> str | None:
    """Say how a worker's plugins differ from the driver's; None when they are the same."""
    ours = {(row["kind"], row["name"]): f"{row['dist']} {row['version']}" for row in driver}
    theirs = {(row["kind"], row["name"]): f"{row['dist']} {row['version']}" for row in worker}
    if ours == theirs:
        return None
    lines = ["the plugins of this worker differ from the driver's."]
    for kind, name in sorted(ours.keys() | theirs.keys()):
        label, ours_has, theirs_has = f"{kind_label(kind)} {name!r}", ours.get((kind, name)), theirs.get((kind, name))
        if theirs_has is None:
            lines.append(f"  only on the driver: {label} ({ours_has})")
        elif ours_has is None:
            lines.append(f"  only on the worker: {label} ({theirs_has})")
        elif ours_has != theirs_has:
            lines.append(f"  {label}: {ours_has} on the driver, {theirs_has} on the worker")
    lines.append("  Install the same versions on every node, with the same RL_PLUGINS and RL_BLOCK_PLUGINS.")
    return "\n".join(lines)
