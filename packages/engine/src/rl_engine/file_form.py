"""How the tensors of a model in memory lie in its files, where transformers keeps several of them as one.

The experts of a layer, for example, are one tensor in memory and two for each expert in the files::

    in memory   mlp.experts.gate_up_proj  [E, 2 I, H]
    in files    mlp.experts.0.gate_proj.weight [I, H] ...  mlp.experts.0.up_proj.weight [I, H] ...

Names come from transformers' own table of conversions, read backwards as ``save_pretrained`` reads it. Values are views of the
tensor in memory, and whether they are the ones that transformers would save is asked of it with a few numbers for each tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
from rl_core.contracts.weights import WeightManifest, WeightSpec
from rl_core.errors import ConfigError
from torch import Tensor
from transformers import PreTrainedModel
from transformers.core_model_loading import (
    Chunk,
    PrefixChange,
    SplitModulelist,
    WeightConverter,
    revert_weight_conversion,
)

Cut = tuple[int, int | None]
"""A dimension, and the number of equal pieces along it; None makes each entry a piece, without that dimension."""

_CONVERSIONS: Final = "_weight_conversions"
_CHAINS: Final = ((Chunk,), (SplitModulelist,), (Chunk, SplitModulelist))
"""What transformers may do to a tensor when it saves it, and this module can do with views."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor in memory as its files have it.

    Attributes:
        names: in the files.
        cuts: that make the tensors of the files, in the order of ``names``, of the one in memory.
    """

    names: tuple[str, ...]
    cuts: tuple[Cut, ...] = ()

    def parts(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of the files, as views of the whole ``tensor``."""
        pieces = [tensor]
        for dim, count in self.cuts:
            pieces = [
                part for piece in pieces for part in (piece.unbind(dim) if count is None else piece.chunk(count, dim))
            ]
        return pieces


@dataclass(frozen=True, slots=True)
class FileForm:
    """The tensors of one model; those that ``stored`` does not name lie in files as they are in memory.

    Attributes:
        stored: name in memory -> form in files.
    """

    stored: Mapping[str, Stored] = field(default_factory=dict)

    def of(self, name: str) -> Stored:
        """Form in files of the tensor ``name``."""
        return self.stored.get(name) or Stored((name,))

    def parts(self, name: str, tensor: Tensor) -> list[tuple[str, Tensor]]:
        """Names in files and views of the whole ``tensor``."""
        stored = self.of(name)
        return list(zip(stored.names, stored.parts(tensor), strict=True))

    @property
    def cut(self) -> tuple[str, ...]:
        """Names in memory of the tensors that are several in files."""
        return tuple(name for name, stored in self.stored.items() if stored.cuts)

    def manifest(self, memory: WeightManifest) -> WeightManifest:
        """``memory``, which lists the tensors in memory, as a list of the tensors in files."""
        return replace(memory, entries=tuple(part for entry in memory.entries for part in self._specs(entry)))

    def _specs(self, entry: WeightSpec) -> Iterator[WeightSpec]:
        twins = (None,) if entry.tied_to is None else self.of(entry.tied_to).names
        parts = self.parts(entry.name, torch.empty(entry.shape, device="meta"))
        for number, (name, part) in enumerate(parts):
            yield replace(entry, name=name, shape=tuple(part.shape), tied_to=twins[number % len(twins)])


def find_file_form(model: PreTrainedModel, shapes: Iterable[tuple[str, torch.Size]]) -> FileForm:
    """Ask transformers in which form it saves ``model``.

    Args:
        model: as transformers loaded or built it.
        shapes: of its tensors by their names in memory.

    Raises:
        ConfigError: a tensor is saved in a form that no view of it has; names it.
    """
    with _conversions_at_hand(model):
        return _find_file_form(model, dict(shapes))


def _find_file_form(model: PreTrainedModel, sizes: Mapping[str, torch.Size]) -> FileForm:
    converters = _backward(model)
    stored: dict[str, Stored] = {}
    for name, size in sizes.items():
        cuts = _cuts(model, name, size, converters)
        probe = _probe(size, cuts)
        try:
            saved = revert_weight_conversion(model, {name: probe})
        except (ValueError, RuntimeError, AttributeError) as error:
            raise ConfigError(_refusal(model, name, f"transformers cannot save it on its own ({error})")) from error
        found = Stored(tuple(saved), cuts)
        views = found.parts(probe)
        if len(views) != len(saved) or not all(map(torch.equal, views, saved.values())):
            raise ConfigError(_refusal(model, name, "its parts in the files are not plain pieces of it"))
        if found != Stored((name,)):
            stored[name] = found
    _require_whole(model, sizes, FileForm(stored))
    return FileForm(stored)


@contextmanager
def _conversions_at_hand(model: PreTrainedModel) -> Iterator[None]:
    """Transformers notes them at a model that it has loaded; for one that was built it would look them up at each question."""
    if getattr(model, _CONVERSIONS, None) is not None:
        yield
        return
    from transformers.conversion_mapping import get_model_conversion_mapping  # noqa: PLC0415 - reads a large table

    found = get_model_conversion_mapping(model, add_legacy=False)
    # A changed prefix is what a file once had, and a model that was built has none; transformers leaves it out too.
    setattr(model, _CONVERSIONS, [entry for entry in found if not isinstance(entry, PrefixChange)])
    try:
        yield
    finally:
        delattr(model, _CONVERSIONS)


def _backward(model: PreTrainedModel) -> list[Any]:
    """Conversions that transformers applies when it saves ``model``, the first that matches a name first."""
    conversions = getattr(model, _CONVERSIONS)
    return [entry.reverse_transform() for entry in reversed(conversions) if isinstance(entry, WeightConverter)]


def _cuts(model: PreTrainedModel, name: str, size: torch.Size, converters: Iterable[Any]) -> tuple[Cut, ...]:
    """How a tensor is cut, by the first of ``converters`` that knows its name."""
    converter = next((one for one in converters if one.rename_source_key(name)[1] is not None), None)
    if converter is None:
        return ()
    operations = converter.operations
    pieces = len(converter.target_patterns)
    known = tuple(map(type, operations)) in _CHAINS and len(converter.source_patterns) == 1
    if not known or any(getattr(one, "num_shards_attribute", None) for one in operations):
        words = " and then ".join(type(one).__name__ for one in operations)
        raise ConfigError(_refusal(model, name, f"transformers makes it with {words}, which is not undone by views"))
    if any(isinstance(one, Chunk) and size[one.dim] % pieces for one in operations):
        raise ConfigError(_refusal(model, name, f"its shape {tuple(size)} is not {pieces} equal pieces"))
    return tuple((one.dim, pieces if isinstance(one, Chunk) else None) for one in operations)


def _probe(size: torch.Size, cuts: Iterable[Cut]) -> Tensor:
    """A small tensor that is cut into as many parts as the real one, with two numbers along each dimension of a part."""
    shape = [2] * len(size)
    for dim, count in cuts:
        shape[dim] = size[dim] if count is None else 2 * count
    return torch.arange(torch.Size(shape).numel()).view(shape)


def _require_whole(model: PreTrainedModel, sizes: Mapping[str, torch.Size], form: FileForm) -> None:
    """Refuse a model whose tensors are saved under other names together than one by one."""
    everything = {name: torch.empty(size, dtype=torch.float32, device="meta") for name, size in sizes.items()}
    together = set(revert_weight_conversion(model, everything))
    apart = {part for name in sizes for part in form.of(name).names}
    if odd := sorted(together ^ apart):
        raise ConfigError(_refusal(model, odd[0], f"{len(odd)} names of its files depend on each other"))


def _refusal(model: PreTrainedModel, name: str, reason: str) -> str:
    return (
        f"model type {model.config.model_type!r} keeps {name} in memory in another form than in its files: {reason}. It could "
        "be neither sent to a generation engine nor exported under its name, so this engine does not train it"
    )
