"""What vLLM's model would do with the tensors of a manifest: its own loaders are asked, with tensors that have no values.

So every architecture, fused layer and parallel layout is judged by the code that will load it. Runs in each of vLLM's workers;
``rl_rollout_vllm.fit_report`` puts their answers together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from rl_core.contracts.weights import WeightManifest, WeightSpec
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rl_rollout_vllm import reload
from rl_rollout_vllm.naming import as_loaded, as_wrapped, made_of, wrapped_pieces

_NEVER_SENT: Final = ("k_scale", "v_scale", "q_scale", "prob_scale")
"""Parameters of vLLM's own that no trainer sends."""


@dataclass
class Filled:
    """What came into one of vLLM's tensors.

    Attributes:
        sources: name in the manifest -> the distinct parts of it that were copied: [number of values, where, shape ...].
        places: distinct parts of the tensor that were written -> number of values.
        dtype: of the tensor.
        computed: whether values were changed on the way.
    """

    dtype: str
    sources: dict[str, set[tuple[int, ...]]] = field(default_factory=dict)
    places: dict[tuple[int, ...], int] = field(default_factory=dict)
    computed: bool = False


class _Watch(TorchDispatchMode):
    """Sees what loaders copy from where to where."""

    def __init__(self, model_tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.filled: dict[str, Filled] = {}
        self.current = ""
        self._targets = {_identity(tensor): name for name, tensor in model_tensors.items()}
        self._sources: dict[int, str] = {}
        self._kept: list[Tensor] = []

    def knows(self, name: str, tensor: Tensor) -> Tensor:
        """Remember that ``tensor`` stands for the entry ``name``."""
        self._sources[_identity(tensor)] = name
        self._kept.append(tensor)  # an identity is only unique among the living
        return tensor

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.copy_.default:
            self._copied(args[0], args[1])
        elif func in (torch.ops.aten.fill_.Scalar, torch.ops.aten.fill_.Tensor, torch.ops.aten.zero_.default):
            self._written(args[0])
        return result

    def _written(self, target: Tensor) -> Filled | None:
        name = self._targets.get(_identity(target))
        if name is None:
            return None
        filled = self.filled.setdefault(name, Filled(str(target.dtype).removeprefix("torch.")))
        filled.places[int(target.storage_offset()), *target.shape] = target.numel()
        return filled

    def _copied(self, target: Tensor, source: Tensor) -> None:
        filled = self._written(target)
        if filled is None:
            return
        name = self._sources.get(_identity(source))
        if name is None:
            filled.computed = True
            filled.sources.setdefault(self.current, set()).add((source.numel(), 0, *source.shape))
        else:
            part = (source.numel(), int(source.storage_offset()), *source.shape)
            filled.sources.setdefault(name, set()).add(part)


def try_manifest(worker: Any, manifest: WeightManifest) -> dict[str, Any]:
    """What this worker's share of the model takes of ``manifest``, in plain JSON values.

    Returns:
        ``params``: vLLM's name -> sources, dtype, values, whether it is exact; ``refused``: entry -> the loader's words;
        ``missing``: names that must come and are not in the manifest.
    """
    model = worker.model_runner.get_model()
    text_config = worker.vllm_config.model_config.hf_text_config
    model_type = str(text_config.model_type)
    with reload.engine_settings(worker.vllm_config), torch.no_grad(), reload.without_values(model):
        bare = reload.named_tensors(model)
        watch = _Watch(bare)
        refused: dict[str, str] = {}
        with watch:
            _offer(model, manifest.entries, watch, model_type, refused)
    missing = sorted(_missing(model, bare, watch.filled, manifest, model_type, _num_experts(text_config)))
    params = {
        name: {
            "sources": {source: sorted(parts) for source, parts in filled.sources.items()},
            "dtype": filled.dtype,
            "exact": not filled.computed and sum(filled.places.values()) == bare[name].numel(),
        }
        for name, filled in watch.filled.items()
    }
    return {"params": params, "refused": refused, "missing": missing}


def _offer(model: Any, entries: Sequence[WeightSpec], watch: _Watch, model_type: str, refused: dict[str, str]) -> None:
    """All at once; where the loader raises, halves, down to the entries that it does not take."""
    pieces = wrapped_pieces(model)

    def offered() -> Iterator[tuple[str, Tensor]]:
        for entry in entries:
            watch.current = entry.name
            for name, tensor in as_loaded(entry.name, watch.knows(entry.name, _bare(entry)), model_type):
                yield as_wrapped(name, pieces), tensor

    try:
        reload.load(model, offered())
    except Exception as error:
        if len(entries) == 1:
            refused[entries[0].name] = f"{type(error).__name__}: {error}"
            return
        half = len(entries) // 2
        _offer(model, entries[:half], watch, model_type, refused)
        _offer(model, entries[half:], watch, model_type, refused)


def _bare(entry: WeightSpec) -> Tensor:
    # Loaders ask a tensor of one value for it.
    device = "cpu" if math.prod(entry.shape) == 1 else "meta"
    return torch.empty(entry.shape, dtype=getattr(torch, entry.dtype), device=device)


def _missing(
    model: Any,
    bare: Mapping[str, Tensor],
    filled: Mapping[str, Filled],
    manifest: WeightManifest,
    model_type: str,
    num_experts: int,
) -> Iterator[str]:
    offered = {
        loaded
        for entry in manifest.entries
        for loaded, _ in as_loaded(entry.name, torch.empty(entry.shape, device="meta"), model_type)
    }
    real = dict(model.named_parameters(remove_duplicate=False))
    shared_with: dict[int, list[str]] = {}
    for name, parameter in real.items():
        shared_with.setdefault(id(parameter), []).append(name)
    for name, parameter in real.items():
        if name.endswith(_NEVER_SENT) or name not in bare:
            continue
        twins = [twin for twin in shared_with[id(parameter)] if twin in filled]
        if any(sum(filled[twin].places.values()) >= bare[twin].numel() for twin in twins):
            continue
        names = made_of(name, model, num_experts)
        absent = [one for one in names if one not in offered]
        if twins:
            yield from absent if len(names) > 1 else ()
        elif not {*names} & offered:
            yield from names[:1] if len(names) > 4 else names
        else:
            yield from absent


def _num_experts(text_config: Any) -> int:
    for name in ("num_experts", "num_local_experts", "n_routed_experts"):
        if value := getattr(text_config, name, None):
            return int(value)
    return 0


def _identity(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
