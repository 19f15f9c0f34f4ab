"""Adapters beside the base weights: a folder as PEFT writes it, which vLLM's workers read.

The adapter keeps its number and its folder from version to version, and the workers replace what they hold under that number.
So sequences that were paused over an update go on with the new adapter, as they do with new weights.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import torch
from rl_core.contracts.weights import WeightBucket, WeightDigest, WeightManifest, WeightSpec
from rl_core.errors import WeightSyncError
from rl_core.resharding.intake import Intake
from rl_engine.lora.adapter import PREFIX
from rl_engine.lora.files import adapter_config, write_adapter
from rl_engine.lora.settings import LoraSettings
from torch import Tensor

NAME: Final = "policy"
NUMBER: Final = 1
"""vLLM's name and number of the one adapter."""


class AdapterFolder:
    """Where one replica's adapter lies for its workers.

    Attributes:
        settings: rank and alpha of the adapter.
        path: the folder; private, and gone with this object.
    """

    def __init__(self, settings: LoraSettings) -> None:
        """Make the folder."""
        self.settings = settings
        self.path = Path(tempfile.mkdtemp(prefix="rl-adapter-"))
        self.close = weakref.finalize(self, shutil.rmtree, self.path, True)

    def request(self) -> Any:
        """What a request to vLLM carries to be answered with the adapter."""
        from vllm.lora.request import LoRARequest  # noqa: PLC0415 - loading vLLM takes seconds

        return LoRARequest(NAME, NUMBER, str(self.path))


class AdapterIntake:
    """One hand-over of an adapter."""

    def __init__(self, folder: AdapterFolder, version: int, manifest: WeightManifest, base: WeightManifest) -> None:
        """Check ``manifest`` against the base model.

        Args:
            folder: where it will lie.
            version: of the policy.
            manifest: of the adapter.
            base: of the weights that the engine holds.

        Raises:
            WeightSyncError: names, shapes or ranks that do not fit, all listed.
        """
        problems = list(adapter_problems(manifest, base, folder.settings.rank))
        if problems:
            msg = f"the adapter of version {version} does not fit the generator's model: {'; '.join(problems)}"
            raise WeightSyncError(msg)
        self._folder = folder
        self._intake = Intake(version, manifest)
        self._tensors: dict[str, Tensor] = {}

    def put(self, bucket: WeightBucket) -> None:
        """Keep a copy on the host; adapters are small."""
        for part, region in self._intake.accept(bucket):
            shape = self._intake.manifest.spec(part.name).shape
            whole = self._tensors.setdefault(part.name, torch.empty(shape, dtype=part.tensor.dtype))
            whole[tuple(slice(start, stop) for start, stop in region)] = part.tensor

    def write(self, digest: WeightDigest) -> None:
        """Check what came, and write it.

        Raises:
            WeightSyncError: something did not come, or not as it was sent.
        """
        self._intake.check_complete(digest)
        layers = sorted({layer_of(name)[0] for name in self._tensors})
        config = adapter_config(
            self._folder.settings, targets=tuple(layers), task_type="CAUSAL_LM", inference_mode=True
        )
        write_adapter(self._folder.path, config, {file_name(name): tensor for name, tensor in self._tensors.items()})


def layer_of(name: str) -> tuple[str, str]:
    """Layer in the checkpoint, and ``A``, ``B`` or nothing, for a tensor of an adapter, whoever has named it.

    Trainers put ``base_model.model.`` before the layer or not, and the adapter's own name behind the matrix or not.
    """
    bare = name.removeprefix(PREFIX).removesuffix(".weight")
    for matrix in ("A", "B"):
        layer, found, rest = bare.partition(f".lora_{matrix}")
        if found and rest in ("", ".default"):
            return layer.replace(".base_layer", ""), matrix
    return bare, ""


def file_name(name: str) -> str:
    """The tensor's name in an adapter file."""
    layer, matrix = layer_of(name)
    return f"{PREFIX}{layer}.lora_{matrix}.weight"


def adapter_problems(manifest: WeightManifest, base: WeightManifest, rank: int) -> Iterator[str]:
    """Everything in the manifest of an adapter that does not fit the base model, one text each."""
    held = {entry.name: tuple(entry.shape) for entry in base.entries}
    matrices: dict[str, set[str]] = {}
    for entry in manifest.entries:
        layer, matrix = layer_of(entry.name)
        if not matrix:
            yield f"{entry.name!r} is no matrix of a LoRA adapter"
            continue
        weight = held.get(f"{layer}.weight")
        if weight is None:
            yield f"{entry.name!r} belongs to {layer!r}, which is not in the model"
            continue
        matrices.setdefault(layer, set()).add(matrix)
        yield from _shape_problems(entry, matrix, weight, rank)
    for layer, found in matrices.items():
        for matrix in sorted({"A", "B"} - found):
            yield f"{file_name(f'{layer}.lora_{matrix}')!r} is missing"
    if not manifest.entries:
        yield "it has no tensors"


def _shape_problems(entry: WeightSpec, matrix: str, weight: tuple[int, ...], rank: int) -> Iterable[str]:
    expected = (rank, weight[-1]) if matrix == "A" else (weight[0], rank)
    if len(weight) != 2 or tuple(entry.shape) != expected:
        yield f"{entry.name!r} has shape {tuple(entry.shape)}; rank {rank} and a layer of shape {weight} need {expected}"
