"""Names and seeds that depend on (seed, step, row, sample) alone, so that a run repeats whatever it runs on."""

from __future__ import annotations

import hashlib


def group_uid(step: int, row: int) -> str:
    """Name of the group of the ``row``-th prompt of ``step``; sorts in the order of the batch."""
    return f"{step:07d}-{row:06d}"


def request_seed(seed: int, step: int, row: int, sample: int) -> int:
    """A 63-bit seed for one response; independent for every combination of arguments."""
    text = f"{seed}/{step}/{row}/{sample}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1
