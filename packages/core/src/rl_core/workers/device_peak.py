"""What accelerators can compute at most: the denominator of MFU."""

from __future__ import annotations

from typing import Final

import torch

TERA: Final = 1e12

PEAKS: Final[tuple[tuple[str, float], ...]] = (
    ("GB300", 2500.0),
    ("GB200", 2500.0),
    ("B300", 2250.0),
    ("B200", 2250.0),
    ("GH200", 989.0),
    ("H200", 989.0),
    ("H100 PCIe", 756.0),
    ("H100 NVL", 835.0),
    ("H100", 989.0),
    ("H800", 989.0),
    ("H20", 148.0),
    ("A100", 312.0),
    ("A800", 312.0),
    ("L40S", 362.0),
    ("L40", 181.0),
    ("L20", 119.5),
    ("L4", 121.0),
    ("A40", 149.7),
    ("A30", 165.0),
    ("A10", 125.0),
    ("RTX 6000 Ada", 364.2),
    ("MI355X", 2500.0),
    ("MI325X", 1307.4),
    ("MI300X", 1307.4),
    ("MI250X", 383.0),
)
"""Part of a device's name -> dense bfloat16 TFLOP/s with tensor cores, without sparsity, by the makers' data sheets; the
first that fits counts, so that longer names stand before shorter ones."""


def peak_of(name: str) -> float | None:
    """Dense bfloat16 FLOP/s of the device called ``name``; None for one that is not in ``PEAKS``."""
    for part, tera in PEAKS:
        if part.lower() in name.lower():
            return tera * TERA
    return None


def device_peak(device: str) -> float | None:
    """Of ``device``, as torch spells it; None for a CPU, whose peak depends on what is not asked for here."""
    if torch.device(device).type != "cuda" or not torch.cuda.is_available():
        return None
    return peak_of(torch.cuda.get_device_name(torch.device(device)))
