"""Whether a manifest fits what a fake rollout holds; shared by the fakes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rl_core.contracts.weights import WeightManifest, WeightSpec


@dataclass(frozen=True, slots=True)
class ExpectedTensor:
    """A tensor that the generator holds.

    Attributes:
        shape: full shape.
        dtype: torch dtype by name.
        tied_to: the tensor whose storage it shares in the generator.
    """

    shape: tuple[int, ...]
    dtype: str
    tied_to: str | None = None


def manifest_problems(manifest: WeightManifest, expected: Mapping[str, ExpectedTensor]) -> list[str]:
    """Everything in ``manifest`` that does not fit ``expected``, one text each.

    An entry that the trainer ties needs no counterpart: the generator copies the other tensor, shares it, or knows no
    such name. The reverse is a problem: values sent for a tensor that the generator cannot hold apart.
    """
    entries = {entry.name: entry for entry in manifest.entries}
    unknown = [name for name, entry in entries.items() if name not in expected and entry.tied_to is None]
    problems = [f"{name!r} is not in the model" for name in unknown]
    for name, wanted in expected.items():
        entry = entries.get(name)
        if entry is None:
            if wanted.tied_to is None:
                problems.append(f"{name!r} is missing")
            continue
        problems += _entry_problems(entry, wanted, entries)
    return problems


def _entry_problems(entry: WeightSpec, wanted: ExpectedTensor, entries: Mapping[str, WeightSpec]) -> Iterable[str]:
    if tuple(entry.shape) != tuple(wanted.shape):
        yield f"{entry.name!r} has shape {tuple(entry.shape)}, the model {tuple(wanted.shape)}"
    if entry.dtype != wanted.dtype:
        yield f"{entry.name!r} is {entry.dtype}, in the model {wanted.dtype}"
    if entry.tied_to is None and wanted.tied_to is not None:
        yield f"{entry.name!r} is sent on its own, but the model shares it with {wanted.tied_to!r}"
    if entry.tied_to is not None:
        source = entries.get(entry.tied_to)
        if source is None or source.tied_to is not None:
            yield f"{entry.name!r} is tied to {entry.tied_to!r}, which is not sent"
