"""Whether what a trainer wants to send fits the generator's model; asked before anything is sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rl_core.contracts.weights import WeightManifest, WeightSpec
from rl_core.resharding.dtypes import fits_dtype, usual_dtype


@dataclass(frozen=True, slots=True)
class HeldTensor:
    """A tensor of the generator's model.

    Attributes:
        shape: as in the checkpoint.
        dtype: torch dtype by name.
        shares: name of the tensor whose memory this one is; its own name when it stands alone, or first.
    """

    shape: tuple[int, ...]
    dtype: str
    shares: str


def manifest_problems(manifest: WeightManifest, held: Mapping[str, HeldTensor]) -> list[str]:
    """Everything in ``manifest`` that does not fit the model, one text each.

    The trainer may send in another floating-point type than the generator's, the same for all tensors; one that differs
    from the others as well is a misfit.
    """
    sent = {entry.name: entry for entry in manifest.sent}
    problems = [f"{name!r} is not in the model" for name in sent if name not in held]
    usual = usual_dtype(manifest)
    problems += [text for entry in manifest.entries for text in _entry_problems(entry, held, sent, usual)]
    groups: dict[str, list[str]] = {}
    for name, tensor in held.items():
        groups.setdefault(tensor.shares, []).append(name)
    for names in groups.values():
        coming = [name for name in names if name in sent]
        if len(coming) > 1:
            problems.append(f"{' and '.join(map(repr, coming))} are sent apart, but share their memory in the model")
    listed = set(manifest.names)
    for names in groups.values():
        if not listed & set(names):
            problems.append(f"{names[0]!r} is missing")
    return problems


def _entry_problems(
    entry: WeightSpec, held: Mapping[str, HeldTensor], sent: Mapping[str, WeightSpec], usual: str | None
) -> Iterator[str]:
    if entry.tied_to is not None and entry.tied_to not in sent:
        yield f"{entry.name!r} is tied to {entry.tied_to!r}, which is not sent"
    tensor = held.get(entry.name)
    if tensor is None:
        return
    if tuple(entry.shape) != tensor.shape:
        yield f"{entry.name!r} has shape {tuple(entry.shape)}, the model {tensor.shape}"
    if not fits_dtype(entry.dtype, {tensor.dtype}, usual):
        yield f"{entry.name!r} is {entry.dtype}, in the model {tensor.dtype}"
