"""``rl plugins list | check NAME | pairings``: what is installed, whether it works, and what fits together.

``list`` and ``pairings`` read records and metadata only; ``check`` imports the part for real.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from rl_core.cli.text import format_table, require_choice
from rl_core.errors import PluginError, PluginNotFoundError
from rl_core.plugins import HOOK_API, KINDS, BackendRecord, Entry, Registry, get_registry, kind_label
from rl_core.plugins.distributions import canonical_name
from rl_core.plugins.hints import known_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def main(argv: Sequence[str]) -> int:
    """Run ``rl plugins`` with its arguments; returns the exit status."""
    arguments = list(argv)
    if arguments and not arguments[0].startswith("-"):
        require_choice("rl plugins", arguments[0], ("list", "check", "pairings"))
    options = _parser().parse_args(arguments)
    command: Callable[[Registry, argparse.Namespace], int] = options.command
    return command(get_registry(), options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rl plugins", description="List and check installed plugins.")
    commands = parser.add_subparsers(required=True, metavar="list|check|pairings")
    listing = commands.add_parser("list", help="every registered part and its status")
    listing.add_argument("--kind", help="only this kind", metavar="KIND")
    listing.add_argument("--json", action="store_true", help="machine-readable")
    listing.set_defaults(command=_list)
    check = commands.add_parser("check", help="import a part, or everything of a distribution, for real")
    check.add_argument("name", help="name or alias of a part, or name of a distribution")
    check.set_defaults(command=_check)
    pairings = commands.add_parser("pairings", help="the resharding chosen for each backend and rollout, and why")
    pairings.add_argument("--json", action="store_true", help="machine-readable")
    pairings.set_defaults(command=_pairings)
    return parser


def _list(registry: Registry, options: argparse.Namespace) -> int:
    if options.kind is not None:
        require_choice("--kind", options.kind, KINDS)
    kinds = KINDS if options.kind is None else (options.kind,)
    entries = [entry for kind in kinds for entry in registry.lookup.entries(kind)]
    if options.json:
        print(json.dumps(_listing(registry, entries), indent=2))
        return 0
    rows = [
        [entry.record.kind, entry.record.name, str(entry.distribution), entry.record.hook_api, status]
        for entry in sorted(entries, key=lambda entry: KINDS.index(entry.record.kind))
        for status in [str(registry.status(entry))]
    ]
    if rows:
        print(format_table(rows, ["KIND", "NAME", "DISTRIBUTION", "API", "STATUS"]))
    elif options.kind:
        print(f"No {kind_label(options.kind)} is installed.{_known(options.kind)}")
    others = [[entry.record.name, ", ".join(entry.record.claims[1:])] for entry in entries if entry.record.claims[1:]]
    if options.kind and others:
        print(f"\nOther names; * stands for any end:\n{format_table(others)}")
    troubled = [found for found in registry.distributions if not found.status.is_ok]
    if troubled:
        print("\nDistributions that are not in use:")
        print(format_table([[str(found), str(found.status)] for found in troubled]))
    for note in registry.notes():
        print(f"note: {note}")
    return 0


def _listing(registry: Registry, entries: Sequence[Entry]) -> dict[str, Any]:
    return {
        "hook_api": ".".join(map(str, HOOK_API)),
        "plugins": [_plugin(registry, entry) for entry in entries],
        "distributions": [
            {
                "name": found.name,
                "version": found.version,
                "module": found.module,
                "status": found.status.word,
                "reason": found.status.reason,
            }
            for found in registry.distributions
        ],
        "notes": list(registry.notes()),
    }


def _plugin(registry: Registry, entry: Entry) -> dict[str, Any]:
    record, status = entry.record, registry.status(entry)
    return {
        "kind": record.kind,
        "name": record.name,
        "aliases": list(record.claims[1:]),
        "dist": entry.distribution.name,
        "version": entry.distribution.version,
        "hook_api": record.hook_api,
        "status": status.word,
        "reason": status.reason,
        "target": record.target,
        "config": record.config,
        "requires": list(record.requires),
        "capabilities": sorted(record.capabilities),
        "summary": record.summary,
    }


def _check(registry: Registry, options: argparse.Namespace) -> int:
    entries = _named(registry, options.name)
    failures: list[PluginError] = []
    for entry in entries:
        print(f"{entry.label}, hook API {entry.record.hook_api}")
        for result in registry.requirements(entry.record):
            print(f"  requires {result.requirement}: found {result.found}, {'ok' if result.satisfied else 'NOT MET'}")
        for part, target, load in _loads(registry, entry):
            try:
                load()
            except PluginError as error:
                failures.append(error)
                print(f"  {part} {target}: FAILED")
            else:
                print(f"  {part} {target}: ok")
    if not failures:
        return 0
    sys.stdout.flush()
    details = "\n".join(f"  {line}" for failure in failures for line in str(failure).splitlines())
    msg = f"{len(failures)} of {sum(len(_loads(registry, entry)) for entry in entries)} loads failed.\n{details}"
    raise type(failures[0])(msg) from failures[0]


def _named(registry: Registry, name: str) -> list[Entry]:
    """Entries of that name, alias or distribution.

    Raises:
        PluginError: nothing has it, or the distribution of that name is not in use.
    """
    claims = [claim for kind in KINDS for claim in registry.lookup.named(kind, name)]
    if claims:
        return claims
    for distribution in registry.distributions:
        if canonical_name(distribution.name) == canonical_name(name):
            entries = [entry for entry in registry.lookup.entries() if entry.distribution is distribution]
            if entries:
                return entries
            msg = f"{distribution} is {distribution.status}."
            raise PluginError(msg) from distribution.cause
    hinted = next((kind for kind in KINDS if name in known_names(kind)), None)
    if hinted is not None:
        registry.entry(hinted, name)
    raise _nothing_named(registry, name)


def _nothing_named(registry: Registry, name: str) -> PluginNotFoundError:
    # Every lookup would answer for its own kind only; a person who types a name does not know the kind.
    import difflib  # noqa: PLC0415

    known = [claim for entry in registry.lookup.entries() for claim in entry.record.claims]
    known += [distribution.name for distribution in registry.distributions]
    close = ", ".join(dict.fromkeys(difflib.get_close_matches(name, known, n=5)))
    lines = [f"no plugin and no distribution is named {name!r}."]
    if close:
        lines.append(f"  Did you mean: {close}?")
    unreadable = [found for found in registry.distributions if not found.status.is_ok and not found.records]
    lines.extend(f"  Not readable, and may have it: {found} ({found.status})." for found in unreadable)
    return PluginNotFoundError("\n".join([*lines, "  See: rl plugins list"]))


def _loads(registry: Registry, entry: Entry) -> list[tuple[str, str, Callable[[], Any]]]:
    record = entry.record
    loads: list[tuple[str, str, Callable[[], Any]]] = [
        ("target", record.target, lambda: registry.load(record.kind, record.name))
    ]
    if record.config is not None:
        loads.append(("config", record.config, lambda: registry.load_config(record.kind, record.name)))
    if isinstance(record, BackendRecord) and record.tokenizer is not None:
        loads.append(("tokenizer", record.tokenizer, lambda: registry.load_tokenizer(record.name)))
    return loads


def _pairings(registry: Registry, options: argparse.Namespace) -> int:
    backends, rollouts = registry.names("backend"), registry.names("rollout")
    pairs = [_pair(registry, backend, rollout) for backend in backends for rollout in rollouts]
    if options.json:
        print(json.dumps(pairs, indent=2))
        return 0
    for kind, names in (("backend", backends), ("rollout", rollouts)):
        if not names:
            print(f"No {kind} is installed.{_known(kind)}")
    if pairs:
        header = ["BACKEND", "ROLLOUT", "RESHARDING", "WHY"]
        rows = [[pair["backend"], pair["rollout"], pair["resharding"] or "-", pair["reason"]] for pair in pairs]
        print(format_table(rows, header))
    return 0


def _pair(registry: Registry, backend: str, rollout: str) -> dict[str, Any]:
    try:
        pairing = registry.pairing(backend, rollout)
    except PluginError as error:
        reason = f"none: {' '.join(str(error).split())}"
        return {"backend": backend, "rollout": rollout, "resharding": None, "transport": None, "reason": reason}
    return {
        "backend": backend,
        "rollout": rollout,
        "resharding": pairing.record.name,
        "transport": pairing.record.transport,
        "reason": pairing.reason,
    }


def _known(kind: str) -> str:
    names = known_names(kind)
    return f" Known ones: {', '.join(names)}." if names else ""
