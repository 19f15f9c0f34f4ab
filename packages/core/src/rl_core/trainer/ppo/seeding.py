"""Names and seeds that depend on (seed, step, row, sample) alone, so that a run repeats whatever it runs on."""

from __future__ import annotations

import hashlib
from typing import Final

GREEDY: Final = "greedy"
"""Stands for the number of the sample in the name and seed of the greedy response to a prompt."""


def group_uid(step: int, row: int) -> str:
    """Name of the group of the ``row``-th prompt of ``step``; sorts in the order of the batch."""
    return f"{step:07d}-{row:06d}"


def request_id(uid: str, sample: int | str) -> str:
    """Name of one response to the prompt ``uid``: the ``sample``-th, or the greedy one."""
    return f"{uid}-{sample}"


def is_greedy(name: str) -> bool:
    """Whether the response of that ``request_id`` is the greedy one to its prompt."""
    return name.endswith(f"-{GREEDY}")


def request_seed(seed: int, step: int, row: int, sample: int | str) -> int:
    """A 63-bit seed for one response; independent for every combination of arguments."""
    text = f"{seed}/{step}/{row}/{sample}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1
