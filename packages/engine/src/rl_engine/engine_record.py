"""``engine.json``: what a checkpoint says about the engine that wrote it, and whether it fits the one that reads it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rl_core.contracts.weights import WeightManifest
from rl_core.errors import CheckpointError

from rl_engine.lora.base import BaseReference, check_base

FILE: Final = "engine.json"
FORMAT: Final = 1


@dataclass(frozen=True, kw_only=True)
class EngineRecord:
    """The plain part of an engine's state.

    Attributes:
        format: version of the layout.
        backend: name of the engine; another one has other files.
        role: what the model is for.
        shapes: of every tensor that is not tied.
        world_size: ranks that wrote it.
        schedule_step: trainer steps done.
        skipped_steps: optimizer steps not taken.
        has_optimizer: whether optimizer state was saved.
        base: what adapters belong to; None where the whole model is saved.
    """

    format: int = FORMAT
    backend: str
    role: str
    shapes: Mapping[str, list[int]]
    world_size: int
    schedule_step: int
    skipped_steps: int
    has_optimizer: bool
    base: BaseReference | None = None

    def write(self, directory: Path) -> None:
        """Write the record into ``directory``."""
        text = json.dumps(dataclasses.asdict(self), indent=2, sort_keys=True)
        (directory / FILE).write_text(text, encoding="utf-8")

    @classmethod
    def read(cls, directory: Path) -> EngineRecord:
        """The record in ``directory``.

        Raises:
            CheckpointError: there is none, or it cannot be read.
        """
        try:
            values = json.loads((directory / FILE).read_text(encoding="utf-8"))
            record = cls(**values)
            if isinstance(record.base, dict):
                record = dataclasses.replace(record, base=BaseReference(**record.base))
        except (OSError, ValueError, TypeError) as error:
            msg = f"{directory} holds no complete checkpoint of a training engine ({error}); choose another global_step folder"
            raise CheckpointError(msg) from error
        if record.format != FORMAT:
            msg = f"{directory} has format {record.format}, this version reads {FORMAT}; use the version that wrote it"
            raise CheckpointError(msg)
        return record

    def check(self, expected: EngineRecord, directory: Path) -> None:
        """Refuse a checkpoint of another model.

        Args:
            expected: what this engine would write.
            directory: for the message.

        Raises:
            CheckpointError: backend, role, base model or a tensor's name or shape differ; or optimizer state is wanted and
                not there.
        """
        if (self.backend, self.role) == (expected.backend, expected.role):
            check_base(self.base, expected.base, directory)
        different = sorted(
            name
            for name in {*self.shapes, *expected.shapes}
            if list(self.shapes.get(name, ())) != list(expected.shapes.get(name, ())) or name not in self.shapes
        )
        if (self.backend, self.role) != (expected.backend, expected.role) or different:
            msg = (
                f"{directory} holds a {self.role} model of backend {self.backend!r}, this is a {expected.role} model of "
                f"backend {expected.backend!r}; {len(different)} tensors differ in name or shape"
                f"{': ' if different else ''}{', '.join(different[:3])}. Choose a checkpoint of this run"
            )
            raise CheckpointError(msg)
        if expected.has_optimizer and not self.has_optimizer:
            msg = f"{directory} has no optimizer state, so training cannot go on from it exactly; start from its export instead"
            raise CheckpointError(msg)


def shapes_of(manifest: WeightManifest) -> dict[str, list[int]]:
    """Name -> shape of every tensor that is not tied."""
    return {spec.name: list(spec.shape) for spec in manifest.sent}
