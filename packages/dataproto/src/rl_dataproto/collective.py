"""Batches of all ranks of a process group on every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from rl_dataproto.row_operations import RowOperations

if TYPE_CHECKING:
    from rl_dataproto.batch import DataProto


def all_gather_data_proto(data: DataProto, process_group: Any = None) -> DataProto:
    """Give every rank the rows of all ranks, in rank order, in place.

    Numbers of rows may differ between ranks, and all kinds of columns are gathered; they travel through host
    memory. The tensor columns come back to the device they were on; metadata stays what it was on this rank.

    Args:
        data: This rank's rows; every rank has the same columns.
        process_group: The ranks that take part; all of them when left out.

    Returns:
        This batch.

    Raises:
        ColumnError: The ranks have different columns.
    """
    device = None
    if data.batch is not None:
        device = data.batch.device or next((column.device for column in data.batch.values()), None)
    parts: list[Any] = [None] * dist.get_world_size(process_group)
    dist.all_gather_object(parts, data.select(meta_info_keys=[]), group=process_group)
    gathered = RowOperations.concat(parts)
    if device is not None and device.type != "cpu":
        gathered.to(device)
    data.batch, data.non_tensor_batch = gathered.batch, gathered.non_tensor_batch
    return data
