"""Which device a worker uses: the one place where logical indices and physical ids meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rl_core.errors import ConfigError


class DeviceMapping(NamedTuple):
    """A device under both of its names.

    Attributes:
        logical: index inside this process, as in ``torch.device("cuda", logical)``.
        physical: id on the machine, as in the visibility variable: an index or a UUID.
    """

    logical: int
    physical: str


def physical_device(
    visible: str | None, local_rank: int, assigned_ids: Sequence[int | str] | None = None
) -> DeviceMapping:
    """Map a local rank to a device.

    Args:
        visible: value of the visibility variable (``CUDA_VISIBLE_DEVICES`` and its like); None when it is unset and
            every device of the machine is visible. Its order counts: "3,1" puts local rank 0 on device 3.
        local_rank: index among the devices this process may use.
        assigned_ids: physical ids that a scheduler gave to this process *without* setting the variable; then the
            process sees other devices too, and the logical index is not ``local_rank``.

    Raises:
        ConfigError: no such device is visible to this process.
    """
    listed = None if visible is None else _visible_ids(visible)
    if assigned_ids is not None:
        ids = [str(device) for device in assigned_ids]
        physical = _pick(ids, local_rank, f"the scheduler assigned {_listing(ids)}")
        if listed is None:
            return _seen_unmasked(physical)
        if physical not in listed:
            msg = (
                f"device {physical} was assigned to this process, but only {_listing(listed)} is visible to it; "
                "unset the visibility variable or assign from what it lists"
            )
            raise ConfigError(msg)
        return DeviceMapping(listed.index(physical), physical)
    if listed is None:
        return DeviceMapping(local_rank, str(local_rank))
    return DeviceMapping(
        local_rank, _pick(listed, local_rank, f"the visibility variable {visible!r} lists {_listing(listed)}")
    )


def _visible_ids(visible: str) -> list[str]:
    """Ids in order. An empty or negative entry hides itself and all after it, as the driver does it."""
    ids: list[str] = []
    for entry in visible.split(","):
        device = entry.strip()
        if not device or device.startswith("-"):
            break
        ids.append(device)
    return ids


def _pick(ids: Sequence[str], local_rank: int, found: str) -> str:
    if not 0 <= local_rank < len(ids):
        msg = f"local rank {local_rank} needs a device, but {found}; start fewer workers here, or show more devices"
        raise ConfigError(msg)
    return ids[local_rank]


def _seen_unmasked(physical: str) -> DeviceMapping:
    if not physical.isdigit():
        msg = (
            f"device {physical} was assigned by its UUID while no visibility variable is set, so its index is not "
            "known; set the variable to the assigned UUIDs"
        )
        raise ConfigError(msg)
    return DeviceMapping(int(physical), physical)


def _listing(ids: Sequence[str]) -> str:
    return f"{len(ids)} ({', '.join(ids)})" if ids else "none"
