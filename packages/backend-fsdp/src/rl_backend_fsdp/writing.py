"""Writing the parts of a checkpoint, at once or while training goes on.

torch.distributed.checkpoint's own steps, in an order that lets the slow one run beside training::

    plan      who writes what                    all ranks together
    copy      what this rank writes, to the host every rank; in the background only
    write     one file a rank                    every rank for itself: no communication, so a thread can do it
    finish    ``.metadata``, by rank 0           all ranks together: only now the files are a checkpoint

A replicated tensor is written, and copied, by one rank alone.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rl_core.contracts.engine import SaveState
from rl_core.errors import CheckpointError
from rl_core.single_controller.base.collective import WorkerContext
from rl_engine.agreement import UNREADABLE, in_one_line, together
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, WriteItem
from torch.distributed.checkpoint.storage import WriteResult
from torch.utils.serialization import config as serialization

_SERIALIZATION: Any = serialization
"""Torch gives this module its methods when it is loaded."""


class Writing:
    """This rank's part of one checkpoint, being written."""

    def __init__(
        self, context: WorkerContext, folder: Path, tensors: Mapping[str, Tensor], *, in_background: bool
    ) -> None:
        """Plan, and write or begin to. Collective.

        Args:
            context: of this rank.
            folder: gets the files.
            tensors: whole or sharded, by name.
            in_background: return when they are copied; they may change from then on.

        Raises:
            CheckpointError: it cannot be planned, or at once not be written; raised on every rank.
        """
        self._context = context
        self._folder = folder
        self._what = f"checkpoint {folder.parent} could not be written"
        self._writer = FileSystemWriter(folder)
        self._planner = _CopyingPlanner()
        self._results: list[WriteResult] | None = None
        self._problem: str | None = None
        self._metadata: Metadata | None = None
        self._thread: threading.Thread | None = None
        plan = self._plan(tensors)
        if not in_background:
            self._write(plan)
            return
        together(context, self._what, lambda: self._planner.copy(plan))
        device = torch.device(context.device)
        self._thread = threading.Thread(
            target=self._write_beside,
            args=(plan, device),
            name=f"checkpoint writer of rank {context.rank}",
            daemon=True,
        )
        self._thread.start()

    @property
    def state(self) -> SaveState:
        """How far this rank is."""
        if self._thread is not None and self._thread.is_alive():
            return SaveState.WRITING
        return SaveState.WRITTEN if self._problem is None else SaveState.FAILED

    def wait(self) -> None:
        """Until this rank has written, or failed. No communication."""
        if self._thread is not None:
            self._thread.join()

    def finish(self) -> None:
        """Wait for all ranks and make the files a checkpoint. Collective.

        Raises:
            CheckpointError: a rank could not write; raised on every rank, with its file.
        """
        self.wait()

        def written() -> list[WriteResult]:
            if self._problem is not None:
                raise CheckpointError(self._problem)
            assert self._results is not None  # no problem, so there are results
            return self._results

        own = together(self._context, self._what, written)
        results = self._context.collective.all_gather_object(own)

        def finish() -> None:
            if self._metadata is not None:
                self._writer.finish(self._metadata, results)

        together(self._context, self._what, finish)

    def _plan(self, tensors: Mapping[str, Tensor]) -> SavePlan:
        context, is_first = self._context, self._context.rank == 0

        def local() -> SavePlan:
            self._planner.set_up_planner(dict(tensors), self._writer.storage_meta(), is_coordinator=is_first)
            self._writer.set_up_storage_writer(is_first)
            return self._writer.prepare_local_plan(self._planner.create_local_plan())

        plans = context.collective.all_gather_object(together(context, self._what, local))

        def shared_out() -> list[SavePlan] | None:
            if not is_first:
                return None
            cut, self._metadata = self._planner.create_global_plan(plans)
            return self._writer.prepare_global_plan(cut)

        cut = context.collective.broadcast_object(together(context, self._what, shared_out))
        return self._planner.finish_plan(cut[context.rank])

    def _write(self, plan: SavePlan) -> None:
        try:
            # Checksums take longer than the writing, and torch never compares them when it reads.
            with _SERIALIZATION.patch("save.compute_crc32", False):
                self._results = self._writer.write_data(plan, self._planner).wait()
        except UNREADABLE as error:
            self._failed(error)
        finally:
            self._planner.forget()

    def _write_beside(self, plan: SavePlan, device: torch.device) -> None:
        try:
            if device.type == "cuda":
                torch.cuda.set_device(device)  # a thread begins with the first one, and torch asks it for a stream
            self._write(plan)
        except Exception as error:
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        self._problem = f"{self._folder / f'__{self._context.rank}_0.distcp'}: {in_one_line(error)}"


class _CopyingPlanner(DefaultSavePlanner):
    """Plans with the tensors as they are; writes copies of them, once it has been told to take some."""

    def __init__(self) -> None:
        super().__init__()
        self._copies: dict[MetadataIndex, Tensor | io.BytesIO] = {}

    def copy(self, plan: SavePlan) -> None:
        """Take copies on the host of what this rank writes."""
        devices = set()
        for item in plan.items:
            data = super().resolve_data(item)
            if isinstance(data, Tensor):
                source = data.detach()
                room = torch.empty(source.shape, dtype=source.dtype, pin_memory=source.device.type == "cuda")
                data = room.copy_(source, non_blocking=True)
                devices |= {source.device} if source.device.type == "cuda" else set()
            self._copies[item.index] = data
        for device in devices:
            torch.cuda.synchronize(device)
        self.state_dict = {}

    def forget(self) -> None:
        """Give up copies and tensors: all is written."""
        self._copies.clear()
        self.state_dict = {}

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        """What is written: the copy, where there is one."""
        found = self._copies.get(write_item.index)
        return super().resolve_data(write_item) if found is None else found
