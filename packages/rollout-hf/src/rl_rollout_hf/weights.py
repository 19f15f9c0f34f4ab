"""Where the trainer's weights arrive, and how they lie in the model."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from rl_core.contracts.rollout import WeightSink
from rl_core.contracts.weights import WeightBucket, WeightDigest, WeightManifest
from rl_core.errors import WeightSyncError
from rl_core.resharding.digest import bit_sum
from rl_core.resharding.intake import Intake, Region
from rl_engine.file_form import find_file_form
from torch import Tensor

from rl_rollout_hf.manifest import HeldTensor, manifest_problems
from rl_rollout_hf.model import named_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel

T = TypeVar("T")
OnDevice = Callable[..., Coroutine[Any, Any, T]]
"""``await on_device(function, *arguments)`` on the engine's device thread, between two steps."""


class ModelWeights:
    """A model's tensors by their names in the checkpoint."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Find out which names share memory; what is several tensors in the checkpoint is views of one in the model."""
        self.tensors: dict[str, Tensor] = {}
        self.held: dict[str, HeldTensor] = {}
        in_memory = dict(named_weights(model))
        form = find_file_form(model, ((name, tensor.shape) for name, tensor in in_memory.items()))
        views: dict[int, list[tuple[str, Tensor]]] = {}
        for name, tensor in in_memory.items():
            first = views.setdefault(id(tensor), form.parts(name, tensor.detach()))
            for own, (shares, part) in zip(form.of(name).names, first, strict=True):
                self.tensors[own] = part
                self.held[own] = HeldTensor(tuple(part.shape), str(part.dtype).removeprefix("torch."), shares)

    def targets(self, manifest: WeightManifest) -> Mapping[str, tuple[Tensor, ...]]:
        """For each tensor that is sent, where it goes: also to those that only the trainer ties to it."""
        wanted: dict[str, dict[int, Tensor]] = {entry.name: {} for entry in manifest.sent}
        for entry in manifest.entries:
            if entry.name in self.tensors:
                tensor = self.tensors[entry.name]
                wanted[entry.tied_to or entry.name][id(tensor)] = tensor
        return {name: tuple(tensors.values()) for name, tensors in wanted.items()}


@torch.no_grad()
def write(targets: tuple[Tensor, ...], region: Region, values: Tensor) -> None:
    """Copy ``values`` to their region of every target, in its type."""
    place = tuple(slice(start, stop) for start, stop in region)
    for tensor in targets:
        tensor[place].copy_(values)


class ModelSink(WeightSink):
    """Fills the model of one engine.

    Attributes:
        version: of the weights in the model; None when they are missing, partial or discarded.
        handovers: how many have ended well; the cache of an older one is not valid.
    """

    def __init__(
        self,
        weights: ModelWeights,
        on_device: OnDevice[Any],
        *,
        is_awake: Callable[[], bool],
        check_model: Callable[[], None],
    ) -> None:
        """Fill ``weights``.

        Args:
            weights: of the model.
            on_device: runs the copies.
            is_awake: whether the weights have memory.
            check_model: run on the device after the first hand-over; raises when the model cannot be served.
        """
        self.version: int | None = None
        self.handovers = 0
        self._weights = weights
        self._on_device = on_device
        self._is_awake = is_awake
        self._check_model: Callable[[], None] | None = check_model
        self._intake: Intake | None = None
        self._targets: Mapping[str, tuple[Tensor, ...]] = {}

    async def begin(self, version: int, manifest: WeightManifest) -> None:
        """See ``WeightSink.begin``; the old version ends here."""
        await self.abort("a new hand-over begins")
        if manifest.stream != "weights":
            msg = (
                f"version {version} was offered as {manifest.stream!r} stream, which rollout 'hf' does not serve; send "
                "merged weights (model.lora.merge=true)"
            )
            raise WeightSyncError(msg)
        if not self._is_awake():
            msg = f"version {version} was offered, but the generator's weights are asleep; wake them first"
            raise WeightSyncError(msg)
        if problems := manifest_problems(manifest, self._weights.held):
            msg = f"the manifest of version {version} does not fit the generator's model: {'; '.join(problems)}"
            raise WeightSyncError(msg)
        self._targets = self._weights.targets(manifest)
        self._intake = Intake(version, manifest)

    async def put(self, bucket: WeightBucket) -> None:
        """See ``WeightSink.put``."""
        await self._attempt(self._store, bucket)

    async def end(self, digest: WeightDigest) -> None:
        """See ``WeightSink.end``; a tensor that lies in the model as it was sent is also checked there."""
        intake = await self._attempt(self._check, digest)
        self._intake = None
        self.handovers += 1
        self.version = intake.version

    async def abort(self, reason: str) -> None:
        """See ``WeightSink.abort``."""
        self.version = None
        self._intake = None

    async def _attempt(self, step: Callable[[Intake, Any], None], argument: Any) -> Intake:
        """Run a step of the hand-over under way; an error in it ends the hand-over."""
        intake = self._intake
        try:
            if intake is not None:
                await self._on_device(step, intake, argument)
        except BaseException:
            self._intake = None
            raise
        if intake is None or self._intake is not intake:
            msg = "weights came outside of a hand-over, or after its end by an error; call begin first"
            raise WeightSyncError(msg)
        return intake

    def _store(self, intake: Intake, bucket: WeightBucket) -> None:
        for part, region in intake.accept(bucket):
            write(self._targets[part.name], region, part.tensor)

    def _check(self, intake: Intake, digest: WeightDigest) -> None:
        intake.check_complete(digest)
        damaged = []
        for spec in intake.manifest.sent:
            for tensor in self._targets[spec.name]:
                is_as_sent = str(tensor.dtype).removeprefix("torch.") == spec.dtype
                if is_as_sent and bit_sum(tensor) != digest[spec.name]:
                    damaged.append(spec.name)
        if damaged:
            msg = f"weights of version {intake.version} were stored wrongly: {damaged}"
            raise WeightSyncError(msg)
        if self._check_model is not None:
            self._check_model()
            self._check_model = None
