"""DeepSpeed in this process: which device it is for, and what it remembers of process groups.

DeepSpeed chooses its device once, when it is imported, from ``DS_ACCELERATOR``; keeps copies of process groups in module
variables, which outlive the groups; and on the CPU compiles an operation of its own for tensor-parallel inference, which
training never calls (and a killed compilation leaves a lock file behind that later runs wait for without a word).
"""

from __future__ import annotations

import logging
import os
from typing import Any

import torch
import torch.distributed as dist
from rl_core.errors import ConfigError

_ACCELERATOR = "DS_ACCELERATOR"
_known: dict[str, Any] = {}


def open_deepspeed(device: torch.device) -> None:
    """Make DeepSpeed use ``device`` and the process group that is open now. Collective the first time.

    Raises:
        ConfigError: this process uses DeepSpeed for another kind of device already.
    """
    os.environ.setdefault(_ACCELERATOR, device.type)
    # DeepSpeed reads it at any time, and means by it the number of the device, which a runtime may show as the first.
    os.environ["LOCAL_RANK"] = str(device.index or 0)
    import deepspeed  # noqa: PLC0415 - chooses its device when it is imported
    from deepspeed.accelerator import get_accelerator  # noqa: PLC0415
    from deepspeed.utils import groups  # noqa: PLC0415

    found = get_accelerator().device_name()
    if found != device.type:
        msg = (
            f"this worker computes on {device.type}, but DeepSpeed was set up for {found} in its process "
            f"({_ACCELERATOR}={os.environ[_ACCELERATOR]}). Unset that variable, or set it to {device.type}"
        )
        raise ConfigError(msg)
    world = dist.group.WORLD
    if _known.get("world") is world:
        return
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    groups._release_process_group_references()
    deepspeed.init_distributed(dist_backend="nccl" if device.type == "cuda" else "gloo", verbose=False)
    _known["world"] = world


def initialize(**arguments: Any) -> tuple[Any, Any]:
    """``deepspeed.initialize``: its engine and optimizer. Collective.

    Raises:
        ConfigError: it refuses its configuration.
    """
    import deepspeed  # noqa: PLC0415 - as above
    from deepspeed.runtime.config import DeepSpeedConfigError  # noqa: PLC0415
    from pydantic import ValidationError  # noqa: PLC0415 - what DeepSpeed's sections are made of

    try:
        engine, optimizer, _, _ = deepspeed.initialize(dist_init_required=False, **arguments)
    except (DeepSpeedConfigError, ValidationError) as error:
        msg = f"DeepSpeed refuses what deepspeed_config.config_file and deepspeed_config.ds_config say: {error}"
        raise ConfigError(msg) from error
    return engine, optimizer
