"""Whether a manifest fits a model that may be cut over several workers: their answers together (see ``fitting``).

Also which digests must be found in vLLM's own memory after a hand-over: a sum of bit patterns does not depend on layout, so
a fused tensor has the sum of its parts', and the shares of several workers add up.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rl_core.contracts.weights import WeightDigest, WeightManifest, WeightSpec
from rl_core.resharding.dtypes import fits_dtype, usual_dtype

Answer = Mapping[str, Any]
"""Of one worker, see ``fitting.try_manifest``."""


class FitReport:
    """The workers' answers about one manifest."""

    def __init__(self, manifest: WeightManifest, answers: Sequence[Answer]) -> None:
        """Judge ``manifest`` by the answers of all workers, in rank order."""
        self._manifest = manifest
        self._answers = answers
        self._parts: dict[str, set[tuple[int, ...]]] = {}
        self._dtypes: dict[str, set[str]] = {}
        for answer in answers:
            for param in answer["params"].values():
                for name, parts in param["sources"].items():
                    self._parts.setdefault(name, set()).update(map(tuple, parts))
                    self._dtypes.setdefault(name, set()).add(param["dtype"])

    @property
    def taken_ties(self) -> dict[str, list[str]]:
        """Sent tensor -> tied names under which the model holds it once more, and must be given it."""
        found: dict[str, list[str]] = {}
        for entry in self._manifest.entries:
            if entry.tied_to is not None and entry.name in self._parts:
                found.setdefault(entry.tied_to, []).append(entry.name)
        return found

    def problems(self) -> list[str]:
        """Everything that does not fit, one text each."""
        found: list[str] = []
        sent = {entry.name for entry in self._manifest.sent}
        usual = usual_dtype(self._manifest)
        for entry in self._manifest.entries:
            if entry.tied_to is not None and entry.tied_to not in sent:
                found.append(f"{entry.name!r} is tied to {entry.tied_to!r}, which is not sent")
            found += self._problems_of(entry, usual)
        missing = dict.fromkeys(name for answer in self._answers for name in answer["missing"])
        return found + [f"{name!r} is missing" for name in missing]

    def _problems_of(self, entry: WeightSpec, usual: str | None) -> list[str]:
        refusal = next(
            (answer["refused"][entry.name] for answer in self._answers if entry.name in answer["refused"]), None
        )
        parts = self._parts.get(entry.name)
        shape = tuple(entry.shape)
        if not parts and entry.tied_to is not None:
            return []
        if refusal is not None and not refusal.startswith(("KeyError", "ValueError: There is no module")):
            return [f"{entry.name!r} has shape {shape}, which vLLM's loader refuses ({refusal})"]
        if not parts:
            return [f"{entry.name!r} is not in the model"]
        taken, size = sum(part[0] for part in parts), math.prod(shape)
        if taken != size:
            return [f"{entry.name!r} has shape {shape}, of which vLLM's model takes {taken} of {size} values"]
        held = self._dtypes[entry.name]
        if not fits_dtype(entry.dtype, held, usual):
            return [f"{entry.name!r} is {entry.dtype}, in the model {', '.join(sorted(held))}"]
        return []

    def stored_wrongly(self, sums: Sequence[Mapping[str, int]], digest: WeightDigest) -> list[str]:
        """Tensors of vLLM whose bits are not those that were sent.

        Args:
            sums: of each worker, vLLM's name -> sum of the bit patterns in its memory, where they are as in a checkpoint.
            digest: of the trainer.
        """
        return [name for name in sums[0] if self._differs(name, sums, digest)] if sums else []

    def _differs(self, name: str, sums: Sequence[Mapping[str, int]], digest: WeightDigest) -> bool:
        specs = {entry.name: entry for entry in self._manifest.entries}
        shares = [answer["params"].get(name) for answer in self._answers]
        if not all(share and share["exact"] and name in own for share, own in zip(shares, sums, strict=True)):
            return False
        sources = {source for share in shares for source in share["sources"]}
        if any(specs[source].dtype != share["dtype"] for share in shares for source in share["sources"]):
            return False
        expected = sum(digest[specs[source].tied_to or source] for source in sources) % 2**64
        each = [
            Counter((source, *part) for source, parts in share["sources"].items() for part in parts) for share in shares
        ]
        together: Counter[tuple[Any, ...]] = sum(each, Counter())
        whole = sum(part[1] for part in together) == sum(math.prod(specs[source].shape) for source in sources)
        if not whole:
            return False
        if all(parts == each[0] for parts in each):
            return any(own[name] != expected for own in sums)
        if max(together.values()) > 1:
            return False  # some parts are held by several workers, some by one
        return sum(own[name] for own in sums) % 2**64 != expected
