"""Reference, critic and reward model that take their time over a batch and write down when they had it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_core.workers.critic import CriticWorker
from rl_core.workers.reference import ReferenceWorker
from rl_core.workers.reward_model import RewardModelWorker

if TYPE_CHECKING:
    from rl_core.single_controller.base import WorkerContext
    from rl_dataproto import DataProto

SECONDS = 1.5
_FOLDER = "spans"


def spans(folder: Path) -> dict[str, list[tuple[float, float]]]:
    """Stage -> start and end of each of its calls in the run whose folder is ``folder``, in seconds since the epoch."""
    files = sorted((folder / _FOLDER).iterdir())
    return {file.name: [_span(line) for line in file.read_text().splitlines()] for file in files}


def _span(line: str) -> tuple[float, float]:
    start, end = line.split()
    return float(start), float(end)


@contextmanager
def _slowly(config: Any, stage: str) -> Iterator[None]:
    started = time.time()
    time.sleep(SECONDS)
    yield
    folder = Path(config.trainer.default_local_dir, _FOLDER)
    folder.mkdir(exist_ok=True)
    with (folder / stage).open("a") as file:
        file.write(f"{started} {time.time()}\n")


class SlowReference(ReferenceWorker):
    """See the module."""

    def __init__(self, context: WorkerContext, config: Any) -> None:
        super().__init__(context, config)
        self._run = config

    def compute_ref_log_prob(self, batch: DataProto) -> DataProto | None:
        with _slowly(self._run, "ref"):
            return super().compute_ref_log_prob(batch)


class SlowCritic(CriticWorker):
    """See the module."""

    def __init__(self, context: WorkerContext, config: Any, **options: Any) -> None:
        super().__init__(context, config, **options)
        self._run = config

    def compute_values(self, batch: DataProto) -> DataProto | None:
        with _slowly(self._run, "values"):
            return super().compute_values(batch)


class SlowRewardModel(RewardModelWorker):
    """See the module."""

    def __init__(self, context: WorkerContext, config: Any, **options: Any) -> None:
        super().__init__(context, config, **options)
        self._run = config

    def compute_rm_score(self, batch: DataProto) -> DataProto | None:
        with _slowly(self._run, "reward"):
            return super().compute_rm_score(batch)
