"""What of an engine's model is streamed, exported and kept: all weights, merged where there are adapters, or adapters alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from rl_core.contracts.engine import EngineState
from rl_core.contracts.weights import WeightBucket, WeightManifest, WeightSpec, WeightStream
from rl_core.errors import ConfigError
from torch import Tensor

from rl_engine.lora.base import BaseReference, fingerprint_of
from rl_engine.lora.merge import gather_merged
from rl_engine.models import resolve_folder
from rl_engine.token_model import TokenModel
from rl_engine.weights import build_manifest, weight_stream

if TYPE_CHECKING:
    from rl_engine.base_engine import HFTrainingEngine


class EngineStreams:
    """The weight streams of one engine.

    Attributes:
        base: what the adapters belong to; None without adapters, and before ``find_base``.
    """

    def __init__(self, engine: HFTrainingEngine) -> None:
        """Those of ``engine``, once it has a model."""
        self._engine = engine
        self._manifests: dict[WeightStream, WeightManifest] = {}  # of the tensors in memory
        self.base: BaseReference | None = None

    def clear(self) -> None:
        """The model is gone."""
        self._manifests.clear()
        self.base = None

    def find_base(self) -> None:
        """Read which base model the adapters belong to; nothing without adapters. Collective."""
        engine = self._engine
        adapter = engine.module("find_base").adapter
        if adapter is not None:
            settings, path = adapter.settings, engine.model_config.path
            found = fingerprint_of(resolve_folder(path), engine.context.collective)
            self.base = BaseReference(path=path, fingerprint=found, rank=settings.rank, alpha=settings.alpha)

    def manifest(self, stream: WeightStream) -> WeightManifest:
        """See ``TrainingEngine.weight_manifest``."""
        module = self._engine.module("weight_manifest")
        in_memory = self._in_memory(stream)
        return in_memory if stream == "adapter" else module.file_form.manifest(in_memory)

    def _in_memory(self, stream: WeightStream) -> WeightManifest:
        """The tensors of a stream as they are in memory, where experts, for example, are one."""
        if stream not in self._manifests:
            module = self._engine.module("weight_manifest")
            # Adapters are sent as they are trained: they are small, and what they are rounded to is their reader's choice.
            wire_dtype = None if stream == "adapter" else self._engine.compute_dtype
            entries = self._tensors(module, stream)
            manifest = build_manifest(entries, wire_dtype=wire_dtype, owner_ranks=self._engine.owner_ranks)
            self._manifests[stream] = replace(manifest, stream=stream)
        return self._manifests[stream]

    def buckets(self, bucket_bytes: int, stream: WeightStream) -> Iterator[WeightBucket]:
        """See ``TrainingEngine.named_weights``."""
        engine, manifest = self._engine, self._in_memory(stream)
        engine.states.require("named_weights", EngineState.PARAMETERS)
        module = engine.module("named_weights")
        tensors = dict(self._tensors(module, stream))

        def gather(specs: Sequence[WeightSpec]) -> list[Tensor]:
            with torch.no_grad():
                if stream == "weights" and module.adapter is not None:
                    return gather_merged(engine.gather, module.adapter, specs, tensors)
                return engine.gather(specs, [tensors[spec.name] for spec in specs])

        return weight_stream(manifest, bucket_bytes, gather, None if stream == "adapter" else module.file_form)

    @property
    def kept(self) -> WeightManifest:
        """What a checkpoint holds, as it is in memory: all weights, or with adapters only what is trained."""
        return self._in_memory("weights" if self._engine.module("checkpoint").adapter is None else "adapter")

    def kept_tensors(self) -> dict[str, Tensor]:
        """The tensors of ``kept``, as they are on this rank."""
        kept = self.kept
        tensors = dict(self._tensors(self._engine.module("checkpoint"), kept.stream))
        return {spec.name: tensors[spec.name] for spec in kept.sent}

    def _tensors(self, module: TokenModel, stream: WeightStream) -> Iterable[tuple[str, Tensor]]:
        if stream != "adapter":
            return module.named_weights()
        if module.adapter is None:
            role = self._engine.role
            msg = f"the stream {stream!r} was asked of a {role} engine that has no adapter; it streams 'weights'"
            raise ConfigError(msg)
        return module.adapter.named_tensors()
