"""One rank's share of the tiny model's weights, and the sink that fills it.

Every matrix is cut by rows: vocabulary rows of embedding and head, output rows of the layers. A slice is written by its
own worker and read by the replica's lead, both in one process; ``lock`` keeps the two apart.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from rl_core.contracts.rollout import RolloutState, WeightSink
from rl_core.contracts.weights import WeightBucket, WeightDigest, WeightManifest
from rl_core.errors import RlError, WeightSyncError
from rl_core.resharding.digest import bit_sum
from rl_core.resharding.intake import Intake, Region

from rl_testing.fakes.manifest import ExpectedTensor, manifest_problems
from rl_testing.fakes.tiny_model import EMBED, HEAD, TinyConfig, shapes

Floats = NDArray[np.float64]


class ModelSlice:
    """Rows ``bounds[name]`` of every tensor, with the policy version they belong to."""

    def __init__(self, config: TinyConfig, rank: int, size: int) -> None:
        """Plan the slice of ``rank`` of ``size``; memory is taken by ``wake``."""
        tied = {HEAD: EMBED} if config.tie_word_embeddings else {}
        self.expected = {
            name: ExpectedTensor(shape, "float64", tied.get(name)) for name, shape in shapes(config).items()
        }
        self.bounds = {name: _rows_of(shape[0], rank, size) for name, shape in shapes(config).items()}
        self.rank = rank
        self.version: int | None = None
        self.lock = threading.RLock()
        self._rows: dict[str, Floats] | None = None
        self._kept: dict[str, Floats] | None = None
        self._has_cache = False

    def resident(self) -> frozenset[RolloutState]:
        """What of this rank is on the device."""
        weights = {RolloutState.WEIGHTS} if self._rows is not None else set()
        return frozenset(weights | ({RolloutState.KV_CACHE} if self._has_cache else set()))

    def rows(self, name: str) -> Floats:
        """This rank's rows of ``name``, [rows, ...].

        Raises:
            RlError: the weights are asleep.
        """
        if self._rows is None:
            msg = f"the weights of rank {self.rank} are asleep; wake them first"
            raise RlError(msg)
        return self._rows[name]

    def sleep(self, level: int) -> frozenset[RolloutState]:
        """Give everything back; see ``RolloutEngine.sleep``."""
        with self.lock:
            if self._rows is not None:
                self._kept, self._rows = self._rows, None
            self._has_cache = False
            if level == 2:
                self._kept, self.version = None, None
            return frozenset({RolloutState.WEIGHTS} if self.version is not None else ())

    def wake(self, tags: Collection[RolloutState]) -> None:
        """Take memory for ``tags``; weights that were discarded come back as NaN."""
        with self.lock:
            if RolloutState.WEIGHTS in tags and self._rows is None:
                self._rows, self._kept = self._kept if self._kept is not None else self._allocate(), None
            self._has_cache = self._has_cache or RolloutState.KV_CACHE in tags

    def write(self, name: str, region: Region, values: torch.Tensor) -> None:
        """Copy what ``region`` of the full tensor has in common with this slice."""
        start, stop = self.bounds[name]
        first, last = max(start, region[0][0]), min(stop, region[0][1])
        if first >= last:
            return
        source = values.detach().cpu().numpy()[first - region[0][0] : last - region[0][0]]
        columns = tuple(slice(low, high) for low, high in region[1:])
        self.rows(name)[(slice(first - start, last - start), *columns)] = source

    def is_whole(self, name: str) -> bool:
        """Whether this rank holds all of ``name``."""
        start, stop = self.bounds[name]
        return stop - start == self.expected[name].shape[0]

    def _allocate(self) -> dict[str, Floats]:
        rows = {
            name: np.full((self.bounds[name][1] - self.bounds[name][0], *tensor.shape[1:]), np.nan)
            for name, tensor in self.expected.items()
            if tensor.tied_to is None
        }
        rows |= {name: rows[tensor.tied_to] for name, tensor in self.expected.items() if tensor.tied_to is not None}
        return rows

    def __reduce__(self) -> NoReturn:
        msg = (
            "a fake rollout's slices are shared between workers of one process; with tensor_model_parallel_size above 1 "
            "it runs in trainer.runtime=local only"
        )
        raise RlError(msg)


class SliceSink(WeightSink):
    """Keeps a rank's rows of what passes, and checks the whole stream."""

    def __init__(self, part: ModelSlice) -> None:
        """Fill ``part``."""
        self.part = part
        self.intake: Intake | None = None

    async def begin(self, version: int, manifest: WeightManifest) -> None:
        """See ``WeightSink.begin``; the old version ends here."""
        await self.abort("a new hand-over begins")
        if RolloutState.WEIGHTS not in self.part.resident():
            msg = f"version {version} was offered, but the weights of rank {self.part.rank} are asleep; wake them first"
            raise WeightSyncError(msg)
        if problems := manifest_problems(manifest, self.part.expected):
            msg = f"the manifest of version {version} does not fit the model: {'; '.join(problems)}"
            raise WeightSyncError(msg)
        self.intake = Intake(version, manifest)

    async def put(self, bucket: WeightBucket) -> None:
        """See ``WeightSink.put``."""
        with self.part.lock, _Attempt(self) as intake:
            for part, region in intake.accept(bucket):
                for name in self._targets(part.name, intake.manifest):
                    self.part.write(name, region, part.tensor)

    async def end(self, digest: WeightDigest) -> None:
        """See ``WeightSink.end``; a tensor that is whole on this rank is also checked where it now lies."""
        with self.part.lock, _Attempt(self) as intake:
            intake.check_complete(digest)
            damaged = [spec.name for spec in intake.manifest.sent if not self._is_intact(spec.name, digest)]
            if damaged:
                msg = f"weights of version {intake.version} were stored wrongly: {damaged}"
                raise WeightSyncError(msg)
            self.part.version = intake.version
        self.intake = None

    async def abort(self, reason: str) -> None:
        """See ``WeightSink.abort``."""
        with self.part.lock:
            self.part.version = None
            self.intake = None

    def _targets(self, name: str, manifest: WeightManifest) -> list[str]:
        """``name``, and what the trainer ties to it but this model holds apart."""
        tied = [entry.name for entry in manifest.entries if entry.tied_to == name]
        own = [other for other in tied if other in self.part.expected and self.part.expected[other].tied_to is None]
        return [name, *own]

    def _is_intact(self, name: str, digest: WeightDigest) -> bool:
        return not self.part.is_whole(name) or bit_sum(torch.from_numpy(self.part.rows(name))) == digest[name]


class _Attempt:
    """A step of a hand-over: an error in it ends the hand-over."""

    def __init__(self, sink: SliceSink) -> None:
        self.sink = sink

    def __enter__(self) -> Intake:
        if self.sink.intake is None:
            msg = f"rank {self.sink.part.rank} got weights outside of a hand-over; call begin first"
            raise WeightSyncError(msg)
        return self.sink.intake

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            self.sink.intake = None


def _rows_of(total: int, rank: int, size: int) -> tuple[int, int]:
    """Share of ``rank`` in ``total`` rows; shares differ by one row at most."""
    base, extra = divmod(total, size)
    start = rank * base + min(rank, extra)
    return start, start + base + (rank < extra)
