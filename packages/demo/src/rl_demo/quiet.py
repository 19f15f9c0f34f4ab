"""What libraries print and how many threads they take, while the demonstration runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_quiet_thread() -> Iterator[None]:
    """One thread, and none of the notes of libraries that a newcomer can do nothing about; as before afterwards."""
    import torch  # noqa: PLC0415 - heavy, and the command's help must not pay for it
    from transformers.utils import logging as transformers_logging  # noqa: PLC0415

    threads, bars = torch.get_num_threads(), transformers_logging.is_progress_bar_enabled()
    tracing = logging.getLogger("torch.fx._symbolic_trace")  # tells PyTorch's own code of a renamed function
    level = tracing.level
    torch.set_num_threads(1)  # in a model this small, threads wait for each other longer than they work
    transformers_logging.disable_progress_bar()
    tracing.setLevel(logging.ERROR)
    try:
        yield
    finally:
        tracing.setLevel(level)
        if bars:
            transformers_logging.enable_progress_bar()
        torch.set_num_threads(threads)
