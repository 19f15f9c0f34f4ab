"""The loop over a file: draw a batch, take an optimizer step, now and then validate and save."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from rl_core.config.schedule import step_schedule
from rl_core.data.loader import PromptLoader
from rl_core.data.tokenizer import model_tokenizer
from rl_core.metrics import merge_metrics
from rl_core.plugins import get_registry
from rl_core.runtime.choose import choose_runtime
from rl_core.single_controller.base.fused import ClassWithInitArgs
from rl_core.trainer.checkpoint import CheckpointStore
from rl_core.trainer.checkpoint_saver import CheckpointSaver
from rl_core.trainer.offline.export import export_model, require_replaceable
from rl_core.trainer.offline.resume import load_checkpoint, save_checkpoint
from rl_core.trainer.placement import resource_pools
from rl_core.trainer.ppo.step import StepLog
from rl_core.trainer.run_folder import write_run_folder
from rl_core.trainer.trackers import Trackers
from rl_core.workers.roles import Role

if TYPE_CHECKING:
    from rl_dataproto import DataProto

    from rl_core.config import Composed, OfflineConfig
    from rl_core.data.chat import ChatDataset
    from rl_core.data.preferences import PreferenceDataset
    from rl_core.metrics import Metric
    from rl_core.plugins import Registry
    from rl_core.runtime.choose import Runtime
    from rl_core.single_controller.base import Worker


class Counts(NamedTuple):
    """What a step was made of."""

    metrics: dict[str, float]
    tokens: int
    """That went through the model."""


class OfflineTrainer(ABC):
    """Trains one model on rows of a file."""

    kind: ClassVar[str]
    """Of run, in checkpoints."""

    identity: ClassVar[Sequence[str]]
    """Fields of an item that tell data sets apart."""

    worker_class: ClassVar[type[Worker]]
    """Built with the configuration and ``total_training_steps``."""

    @abstractmethod
    def read(self, files: Any, tokenizer: Any, max_samples: int) -> ChatDataset | PreferenceDataset:
        """Read, check and tokenise the rows of ``files``, the first ``max_samples`` of them; -1 reads all."""

    @abstractmethod
    def make_batch(self, items: Sequence[Mapping[str, Any]]) -> DataProto:
        """The rows of one optimizer step, with a plan."""

    @abstractmethod
    def update(self, batch: DataProto) -> Mapping[str, Metric]:
        """Take the step."""

    @abstractmethod
    def judge(self, batch: DataProto) -> dict[str, float]:
        """Numbers about validation rows, ``val/...``."""

    @abstractmethod
    def count(self, batch: DataProto) -> Counts:
        """What the batch of a step holds."""

    def __init__(self, config: Any, tokenizer: Any, runtime: Runtime, registry: Registry) -> None:
        """Read the data and settle the length of the run; no worker is started before ``init_workers``.

        Args:
            config: the composed configuration of the run, an ``OfflineConfig``.
            tokenizer: of the model.
            runtime: starts worker groups.
            registry: finds trackers by name.
        """
        self.config = config
        self.runtime = runtime
        self.registry = registry
        if config.trainer.export_dir is not None:
            require_replaceable(Path(config.trainer.export_dir).expanduser())
        data = config.data
        self.dataset = self.read(data.train_files, tokenizer, data.train_max_samples)
        self.val_dataset = self.read(data.val_files, tokenizer, data.val_max_samples) if data.val_files else None
        for what, dataset in (("training", self.dataset), ("validation", self.val_dataset)):
            for note in dataset.notes(what) if dataset else ():
                print(f"note: {note}")  # noqa: T201 - a run that cuts or drops data says so
        self.schedule = step_schedule(config, len(self.dataset))
        self.total_steps = self.schedule.total_steps
        self.loader = PromptLoader(
            self.dataset,
            batch_size=data.train_batch_size,
            epochs=config.trainer.total_epochs,
            shuffle=data.shuffle,
            seed=data.seed if data.seed is not None else config.trainer.seed,
            identity=self.identity,
        )
        self.trackers = Trackers.from_config(config, registry)
        store = CheckpointStore(config.trainer.default_local_dir, max_to_keep=config.trainer.max_ckpt_to_keep)
        self.saver = CheckpointSaver(store)
        self.global_step = 0

    def init_workers(self) -> None:
        """Start the workers, load the model, and go on from a checkpoint if there is one."""
        # A group's methods are bound when it is built, so they are typed by the worker class, not by the group.
        group: Any = self.runtime.worker_groups(
            resource_pools(self.config),
            {
                Role.ActorRolloutRef: ClassWithInitArgs(
                    self.worker_class, self.config, total_training_steps=self.total_steps
                )
            },
        )[Role.ActorRolloutRef]
        self.worker_group = group
        group.init_model()
        load_checkpoint(self)

    def fit(self) -> None:
        """Train to the last step."""
        if self.val_dataset and self.global_step == 0 and self.schedule.validates_after(0):
            self.trackers.log(0, self.validate())
        save_time: dict[str, float] = {}
        while self.global_step < self.total_steps:
            self.saver.poll()
            self.global_step += 1
            log = StepLog(self.global_step, self.registry)
            log.add({"training/epoch": self.loader.epoch, "training/total_steps": self.total_steps} | save_time)
            with log.timer("step"):
                with log.timer("data"):
                    batch = self.make_batch(self.loader.next())

                with log.timer("update"):
                    log.merge(self.update(batch))

                if self.val_dataset and self.schedule.validates_after(self.global_step):
                    with log.timer("testing"):
                        log.add(self.validate())
            counts = self.count(batch)
            log.add(counts.metrics)
            log.merge(merge_metrics(self.worker_group.phase_metrics()))
            self.trackers.log(self.global_step, log.close(counts.tokens))
            # After the log, so that no step of a checkpoint lacks its numbers; its time stands with the next step.
            save_time = save_checkpoint(self) if self.schedule.saves_after(self.global_step) else {}
        self.saver.wait()

    def validate(self) -> dict[str, float]:
        """Numbers about all validation rows; none without such rows."""
        return {} if self.val_dataset is None else self.judge(self.make_batch(self.val_dataset.items))

    def export(self) -> Path | None:
        """Write the model with its tokenizer to ``trainer.export_dir``, whole or not at all; None where none is wanted."""
        if self.config.trainer.export_dir is None:
            return None
        folder = Path(self.config.trainer.export_dir).expanduser()
        started = time.perf_counter()
        origin = {"run": self.config.trainer.default_local_dir, "step": self.global_step}
        export_model(folder, self.worker_group.export_hf, origin)
        seconds = time.perf_counter() - started
        print(f"exported the model to {folder} in {seconds:.1f} s")  # noqa: T201 - what comes next starts from there
        return folder

    def close(self) -> None:
        """End workers and trackers; safe after a failure."""
        with ExitStack() as stack:
            stack.callback(self.runtime.shutdown)
            stack.callback(self.trackers.close)


def train(make: type[OfflineTrainer], composed: Composed) -> Path:
    """Train as configured; everything that was started is ended, also after a failure.

    Returns:
        The run folder.
    """
    config: OfflineConfig = composed.tree
    registry = get_registry()
    model, strategy = config.model, config.engine.strategy
    path = model.tokenizer_path or model.path
    tokenizer = model_tokenizer(model, strategy, registry, path=path, section="model")
    runtime = choose_runtime(composed.tree, registry)
    trainer = make(config, tokenizer, runtime, registry)
    try:
        trainer.init_workers()
        folder = Path(config.trainer.default_local_dir).expanduser()
        if trainer.global_step >= trainer.total_steps:
            print(f"already complete: all {trainer.total_steps} steps are done, see {folder}")  # noqa: T201
        else:
            # A run that is refused, or has nothing to do, must not describe itself as what trained the checkpoints.
            write_run_folder(composed, registry)
        trainer.fit()
        trainer.export()
    finally:
        trainer.close()
    return folder
